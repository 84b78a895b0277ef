"""Nodes that repeat become the same layers as if each were lowered by itself."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import numpy as np
import pytest

from builders import LIGHT, light_path, network, node, thin_network
from orinport.model import load
from orinport.model.layer import LayerKind
from orinport.model.lower import lower
from orinport.targets.version import Version

if TYPE_CHECKING:
    from orinport.model.layer import Layer
    from orinport.model.model import Model

form = importlib.import_module("orinport.model.lower.form")
X = {"x": (1, 8, 16, 16)}


def by_themselves(model: Model, version: Version, monkeypatch: pytest.MonkeyPatch) -> tuple[Layer, ...]:
    with monkeypatch.context() as patch:
        patch.setattr(form, "REPEATED", frozenset())
        return lower(model, tensorrt=version)


@pytest.mark.parametrize("version", ["8.5.2", "8.6.2", "10.3.0", "11.1.0"])
def test_light_networks_are_lowered_alike(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LIGHT:
        model = load(light_path(name))
        parsed = Version.parse(version)
        assert repr(lower(model, tensorrt=parsed)) == repr(by_themselves(model, parsed, monkeypatch))


def test_a_form_is_more_than_its_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strides, kernels, a bias, ranks, constants and types that differ between two nodes make two forms."""
    nodes = [
        node("Conv", ["x", "k3"], "a", pads=[1, 1, 1, 1]),
        node("Conv", ["a", "k3"], "b", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Conv", ["b", "k3", "bias"], "c", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Conv", ["c", "k1"], "d"),
        node("Add", ["d", "d"], "e"),
        node("Add", ["d", "scalar"], "f"),
        node("Add", ["scalar", "d"], "g"),
        node("Add", ["e", "f"], "h"),
        node("Add", ["f", "g"], "i"),
        node("Cast", ["i"], "j", to=10),
        node("Cast", ["h"], "k", to=10),
        node("Add", ["j", "k"], "l"),
        node("LeakyRelu", ["l"], "m", alpha=0.1),
        node("LeakyRelu", ["m"], "n", alpha=0.2),
    ]
    constants = {
        "k3": np.ones((8, 8, 3, 3), np.float32),
        "k1": np.ones((8, 8, 1, 1), np.float32),
        "bias": np.ones(8, np.float32),
        "scalar": np.ones((), np.float32),
    }
    model = load(network(nodes, X, ["n"], constants))
    version = Version.parse("8.6.2")
    layers = lower(model, tensorrt=version)
    assert repr(layers) == repr(by_themselves(model, version, monkeypatch))
    slopes = [layer["alpha"] for layer in layers if layer.kind is LayerKind.ACTIVATION]
    assert slopes == pytest.approx([0.1, 0.2])


def test_layers_of_one_form_share_their_attributes() -> None:
    layers = lower(load(thin_network(400)), tensorrt=Version.parse("8.6.2"))
    pools = [layer for layer in layers if layer.kind is LayerKind.POOLING]
    assert len(pools) > 50
    assert len({id(layer.attributes) for layer in pools}) == 1
    assert len({layer.name for layer in pools}) == len(pools)
