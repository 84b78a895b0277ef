"""What nodes compute, and which rewriting takes sums to the DLA."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from builders import network, node
from orinport.model.load import load
from orinport.rewrites.cost import takes_sums

if TYPE_CHECKING:
    import onnx_ir as ir

CONSTANTS = {"w": np.ones((64, 64), np.float32), "s": np.asarray([1, 512]), "p": np.asarray([3, 5])}
CONSTANTS |= {"v": np.ones(64, np.float32), "b": np.asarray([0]), "e": np.asarray([1])}


def some(*names: str) -> list[ir.Node]:
    """Nodes of a network with a large product, and what may come of it."""
    nodes = [
        node("MatMul", ["x", "w"], "product"),
        node("Concat", ["x", "x"], "joined", axis=0),
        node("Concat", ["joined", "x"], "joined more", axis=0),
        node("Concat", ["product", "x"], "elsewhere", axis=0),
        node("Reshape", ["x", "s"], "moved"),
        node("MatMul", ["x", "w"], "again"),
        node("Concat", ["x"] * 80, "much", axis=0),
        node("Split", ["x", "p"], ["parts", "rest"], axis=0),
        node("LayerNormalization", ["x", "v"], "norm"),
        node("Slice", ["x", "b", "e"], "first"),
        node("Sqrt", ["first"], "root"),
    ]
    outputs = [each.output[0] for each in nodes]
    graph = load(network(nodes, {"x": (8, 64)}, outputs, CONSTANTS)).graph
    found = {each.outputs[0].name: each for each in graph}
    return [found[name] for name in names]


@pytest.mark.parametrize(
    ("after", "takes"),
    [
        ([], True),
        (["joined"], True),
        (["joined", "joined more"], True),
        (["joined", "moved"], True),
        (["joined", "elsewhere"], False),
        (["again"], False),
        (["again", "joined"], False),
        (["much"], False),
        (["parts"], False),
    ],
)
def test_sums_go_to_the_dla(after: list[str], takes: bool) -> None:
    """Where none is left, in no more places than before and with less work."""
    assert takes_sums(some("product"), some(*after)) is takes


def test_a_norm_is_sums_but_for_its_root() -> None:
    assert takes_sums(some("norm"), some("root"))


def test_without_sums_nothing_is_taken() -> None:
    assert not takes_sums(some("joined"), [])
