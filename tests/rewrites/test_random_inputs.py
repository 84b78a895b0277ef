"""Random inputs: within what makes a value and what reads it, and indices that their readers take."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto

from builders import network, node
from orinport.rewrites.random_inputs import plausible_range, random_inputs
from orinport.rewrites.runner import NotProvableError


def graph(*nodes: object, **inputs: object) -> ir.Graph:
    return ir.from_proto(network(list(nodes), inputs, ["y"])).graph


def value(graph: ir.Graph, name: str) -> ir.Value:
    return next(each for step in graph for each in step.outputs if each.name == name)


def test_what_makes_a_value_bounds_it_through_what_keeps_the_range() -> None:
    made = graph(
        node("Sigmoid", ["x"], "s"), node("Transpose", ["s"], "t", perm=[1, 0]), node("Neg", ["t"], "y"), x=(2, 3)
    )
    assert plausible_range(value(made, "t")) == (0.0, 1.0)
    assert plausible_range(value(made, "y")) == (None, None)


def test_what_reads_a_value_bounds_it() -> None:
    made = graph(node("Div", ["a", "b"], "y"), a=(4, 4), b=(4, 4))
    arrays = random_inputs(made.inputs, np.random.default_rng(0))
    assert arrays["b"].min() >= 0.05
    assert arrays["a"].min() < 0


def test_indices_stay_below_the_axis() -> None:
    made = graph(node("Gather", ["x", "i"], "y", axis=1), x=(2, 3), i=((50,), np.int64))
    arrays = random_inputs(made.inputs, np.random.default_rng(0))
    assert set(arrays["i"].tolist()) == {0, 1, 2}


def test_truth_values_are_both() -> None:
    made = graph(node("Not", ["c"], "y"), c=((64,), np.bool_))
    assert set(random_inputs(made.inputs, np.random.default_rng(0))["c"].tolist()) == {True, False}


def test_text_has_no_random_values() -> None:
    text = ir.Value(name="t", shape=ir.Shape([2]), type=ir.TensorType(ir.DataType(TensorProto.STRING)))
    with pytest.raises(NotProvableError, match="text"):
        random_inputs([text], np.random.default_rng(0))
