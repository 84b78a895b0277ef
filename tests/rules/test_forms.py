"""Rules that are not asked about a layer would have had nothing to say about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from builders import LIGHT, light_path
from layers import chain, relu, tensor
from orinport.model import load
from orinport.model.layer import LayerKind
from orinport.model.lower import lower
from orinport.rules import check_layers, engine
from orinport.rules.forms import Forms
from orinport.rules.rule import LayerRule
from orinport.targets import load_target
from orinport.targets.target import Precision

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class Asking:
    """Asks every rule about every layer."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def findings(self, layer: Layer, rules: Iterable[LayerRule]) -> list[Finding]:
        return [finding for rule in rules for finding in rule.check(layer, self.context)]


@pytest.mark.parametrize(("name", "precision"), [("orin-agx-64gb/jp6.0", "fp16"), ("xavier-agx/jp5.1", "int8")])
def test_light_networks_get_the_same_findings(name: str, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, chosen = load_target(name), Precision(precision)
    for light in LIGHT:
        model = load(light_path(light))
        layers = lower(model, tensorrt=target.stack.tensorrt)
        options = {"inputs": model.inputs, "outputs": model.outputs, "target": target, "precision": chosen}
        found = check_layers(layers, **options)
        with monkeypatch.context() as patch:
            patch.setattr(engine, "Forms", Asking)
            assert check_layers(layers, **options) == found


class Counting(LayerRule):
    """Speaks on nothing, and counts how often it is asked."""

    code, title, rows, kinds = "DLA998", "", (), (LayerKind.ACTIVATION,)

    def __init__(self, looks: str = "") -> None:
        self.looks = looks
        self.asked: list[str] = []

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        if self.looks:
            len(getattr(context, self.looks))
        self.asked.append(layer.name)
        yield from ()


def asked(rule: Counting, layers: list[Layer]) -> int:
    contexts: list[Context] = []

    class Watched(Forms):
        def __init__(self, context: Context) -> None:
            contexts.append(context)
            super().__init__(context)

    target = load_target("orin-agx-64gb/jp6.0")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "Forms", Watched)
        check_layers(layers, inputs=(), outputs=(), target=target, precision=Precision.FP16)
    forms = Forms(contexts[0])
    for layer in layers:
        assert forms.findings(layer, [rule]) == []
    return len(rule.asked)


def test_a_silent_rule_is_asked_once_for_a_form() -> None:
    layers = chain(*[relu(f"t{i}", f"t{i + 1}") for i in range(10)])
    assert asked(Counting(), layers) == 1


@pytest.mark.parametrize("looks", ["producers", "consumers", "inputs", "outputs", "verdicts", "memo"])
def test_a_rule_that_looks_around_is_asked_each_time(looks: str) -> None:
    layers = chain(*[relu(f"t{i}", f"t{i + 1}") for i in range(10)])
    assert asked(Counting(looks), layers) == 10


def test_shapes_make_forms() -> None:
    layers = chain(relu("a", "b"), relu("b", "c"), relu(tensor("c", (1, 2, 3, 4)), tensor("d", (1, 2, 3, 4))))
    assert asked(Counting(), layers) == 2
