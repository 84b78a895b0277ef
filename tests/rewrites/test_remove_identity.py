"""remove-identity: nodes that change nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnxruntime
import pytest
from onnx import helper

from builders import network, node
from orinport.rewrites.catalogue.remove_identity import REWRITE
from rewrites.harness import SEEDS, Draw, Pattern, apply_to, check_refused, check_rewrite

if TYPE_CHECKING:
    from collections.abc import Sequence


CASTS_HALF_TO_HALF = tuple(int(part) for part in onnxruntime.__version__.split(".")[:2]) >= (1, 31)
"""ONNX Runtime up to 1.30 does not load a network with a Cast from FP16 to FP16 (measured: 1.23.2 to 1.30.0)."""


def generate(draw: Draw) -> Pattern:
    shape = draw.shape(draw.integer(1, 4))
    opset = draw.opset()
    constants: dict[str, np.ndarray] = {}
    kind = draw.choose(["Identity", "Dropout", "Cast", "Concat", "Sum", "Mean", "Max", "Min", "Expand", "Pad", "Slice"])
    names, attributes = ["a"], {}
    if kind == "Cast":
        if not CASTS_HALF_TO_HALF:
            draw.dtype = np.float32
        attributes["to"] = helper.np_dtype_to_tensor_dtype(np.dtype(draw.dtype))
    if kind == "Concat":
        attributes["axis"] = draw.integer(0, len(shape) - 1)
    if kind == "Expand":
        constants["shape"] = np.asarray(shape, np.int64)
        names.append("shape")
    if kind == "Pad":
        if opset < 11:
            attributes["pads"] = [0] * 2 * len(shape)
        else:
            constants["pads"] = np.zeros(2 * len(shape), np.int64)
            names.append("pads")
    if kind == "Slice":
        if opset < 10:
            attributes |= {"starts": [0], "ends": [shape[0]], "axes": [0]}
        else:
            constants |= {"starts": np.zeros(1, np.int64), "ends": np.asarray([1 << 40], np.int64)}
            names += ["starts", "ends"]
    outputs = ["b", "mask"] if kind == "Dropout" and draw.chance(0.5) else ["b"]
    nodes = [node("Neg", ["x"], "a"), node(kind, names, outputs, **attributes), node("Abs", ["b"], "y")]
    pattern = Pattern(nodes, {"x": shape}, ["y"], constants, opset)
    pattern.applies = not (kind == "Dropout" and len(outputs) > 1)
    if not pattern.applies:
        pattern.nodes[1] = node(kind, names, ["b"])
        pattern.applies = True
    return pattern


@pytest.mark.parametrize("seeds", SEEDS)
def test_equal(seeds: Sequence[int]) -> None:
    check_rewrite(REWRITE, generate, seeds)


def test_an_input_joined_to_an_output_is_refused() -> None:
    check_refused(network([node("Identity", ["x"], "y")], {"x": (2, 3)}, ["y"]), REWRITE, "join")


def test_a_used_mask_is_refused() -> None:
    nodes = [node("Dropout", ["x"], ["d", "m"]), node("Not", ["m"], "z"), node("Neg", ["d"], "y")]
    check_refused(network(nodes, {"x": (2, 3)}, ["y", "z"]), REWRITE, "mask")


def test_training_mode_is_refused() -> None:
    nodes = [node("Dropout", ["x", "ratio", "mode"], "d"), node("Neg", ["d"], "y")]
    constants = {"ratio": np.asarray(0.5, np.float32), "mode": np.asarray(True)}
    check_refused(network(nodes, {"x": (2, 3)}, ["y"], constants), REWRITE, "training mode")


def test_a_slice_that_reverses_stays() -> None:
    nodes = [node("Slice", ["x", "s", "e", "a", "t"], "d"), node("Neg", ["d"], "y")]
    constants = {
        "s": np.asarray([-1], np.int64),
        "e": np.asarray([-100], np.int64),
        "a": np.asarray([0], np.int64),
        "t": np.asarray([-1], np.int64),
    }
    _, log = apply_to(network(nodes, {"x": (4, 3)}, ["y"], constants), REWRITE)
    assert not log.applied
