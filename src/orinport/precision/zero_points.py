"""When is a quantiser with a zero point a symmetric one? Where every value that can occur comes out equal.

    x -> QuantizeLinear(s, z) -> DequantizeLinear(s, z)   ==   s * clip(round(x / s), low - z, high - z)

Symmetric INT8 with the same scale clips to -128 ... 127 in place of that. So a zero point is nothing but another way
to write the integers down if both clip alike whatever the tensor can hold: always for UINT8 with zero point 128; for
others where the operator before it bounds the tensor, e.g. UINT8 with zero point 0 behind a Clip that ends at 127 steps
or before. UINT8 with zero point 0 behind a plain ReLU is not: of its 255 steps symmetric INT8 has 127, so either
values saturate or steps double.

Does a target's DLA take zero points? TensorRT's ONNX parser has a flag for them from 10.11 on, and an engine made
with it needs DLA software 3.16 (row I05: NvOnnxParser.h). No stack that is known brings it for certain.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import numpy as np

from orinport.targets.catalogue import catalogue_rows
from orinport.targets.version import Version

if TYPE_CHECKING:
    import onnx_ir as ir

    from orinport.model.model import Model
    from orinport.targets.target import Target

__all__ = ["INTEGER_MOVERS", "bounds_of", "is_symmetric", "on_target", "takes_zero_points"]

_SYMMETRIC = (-128, 127)
_ROW = "I05"

_RANGES = {
    "Abs": (0.0, inf),
    "Exp": (0.0, inf),
    "HardSigmoid": (0.0, 1.0),
    "Relu": (0.0, inf),
    "Sigmoid": (0.0, 1.0),
    "Softmax": (0.0, 1.0),
    "Softplus": (0.0, inf),
    "Tanh": (-1.0, 1.0),
}
"""What operators can give, by their definition."""

INTEGER_MOVERS = frozenset(
    {"Flatten", "Gather", "Identity", "MaxPool", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"}
)
"""They hand on integers whatever these stand for. A Pad does not: its zeros stand for another value than before."""


def is_symmetric(scale: float, low: int, high: int, bounds: tuple[float, float]) -> bool:
    """True if clipping to `low` ... `high` steps of `scale` is clipping to -128 ... 127 for values within `bounds`."""
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        least, most = (np.rint(np.float32(bound) / np.float32(scale)) for bound in bounds)
    if np.isnan(least) or np.isnan(most):
        return False
    return bool(max(least, low) == max(least, _SYMMETRIC[0]) and min(most, high) == min(most, _SYMMETRIC[1]))


def bounds_of(model: Model, value: ir.Value) -> tuple[float, float]:
    """The smallest and the largest value that a tensor can hold, by the operators that make it."""
    low, high = -inf, inf
    for _ in range(64):
        node = value.producer()
        if node is None or node.domain not in ("", "ai.onnx"):
            break
        made = _clip(model, node) if node.op_type == "Clip" else _RANGES.get(node.op_type, (-inf, inf))
        low, high = max(low, made[0]), min(high, made[1])
        if node.op_type not in INTEGER_MOVERS and node.op_type not in ("Clip", "Relu"):
            break
        if node.inputs[0] is None:
            break
        value = node.inputs[0]
    return low, high


def _clip(model: Model, node: ir.Node) -> tuple[float, float]:
    """Bounds of a Clip, as inputs or (before opset 11) attributes; infinite where they are not constant."""
    found = [-inf, inf]
    for position, name in enumerate(("min", "max")):
        if name in node.attributes:
            found[position] = node.attributes[name].as_float()
        elif len(node.inputs) > position + 1 and (value := node.inputs[position + 1]) is not None:
            array = model.constant(value)
            if array is not None and array.size == 1 and np.isfinite(array).all():
                found[position] = float(array.reshape(()))
    return found[0], found[1]


def takes_zero_points(target: Target) -> bool | None:
    """Does the DLA take quantisers with zero points on this target? None if nothing says which DLA software it has."""
    row = catalogue_rows()[_ROW]
    if row.since is None or target.stack.tensorrt < row.since or target.hardware.platform not in row.platforms:
        return False
    return None if target.stack.dla is None else target.stack.dla >= Version.parse(row.values["dla_software"])


def on_target(target: Target) -> str:
    """What `takes_zero_points` found, as the end of a sentence."""
    row = catalogue_rows()[_ROW]
    needs = f"TensorRT {row.since} and DLA software {row.values['dla_software']}"
    have = f"TensorRT {target.stack.tensorrt}"
    taken = takes_zero_points(target)
    if taken is None:
        return (
            f"zero points on the DLA need {needs}; this is {have}, and which DLA software it brings is not documented"
        )
    software = "" if target.stack.dla is None else f" with DLA software {target.stack.dla}"
    if taken:
        return f"{have}{software} takes zero points in a network with Q/DQ layers only, not in scales"
    return f"zero points on the DLA need {needs}, and this is {have}{software}"
