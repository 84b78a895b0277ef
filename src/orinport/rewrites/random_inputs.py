"""Random inputs within the range that a value plausibly has: what makes it and what reads it bound it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from orinport.rewrites.runner import NotProvableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from orinport.rewrites.runner import Arrays

__all__ = ["plausible_range", "random_array", "random_inputs"]


@dataclass(frozen=True, slots=True)
class _Range:
    low: float | None = None
    high: float | None = None


_RANGE_AFTER = {
    "Relu": _Range(0.0),
    "Abs": _Range(0.0),
    "Sqrt": _Range(0.0),
    "Exp": _Range(0.0),
    "Softplus": _Range(0.0),
    "Sigmoid": _Range(0.0, 1.0),
    "HardSigmoid": _Range(0.0, 1.0),
    "Softmax": _Range(0.0, 1.0),
    "Tanh": _Range(-1.0, 1.0),
    "Erf": _Range(-1.0, 1.0),
    "Sin": _Range(-1.0, 1.0),
    "Cos": _Range(-1.0, 1.0),
}
"""What an operator's output lies in."""

_KEEPS_RANGE = frozenset(
    {
        "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Identity", "Dropout", "MaxPool", "AveragePool",
        "GlobalAveragePool", "GlobalMaxPool", "ReduceMean", "ReduceMax", "Slice", "Split", "Gather", "Expand", "Tile",
        "DepthToSpace", "SpaceToDepth",
    }
)  # fmt: skip

_RANGE_FOR = {
    ("Sqrt", 0): _Range(0.0),
    ("Log", 0): _Range(0.05),
    ("Pow", 0): _Range(0.05),
    ("Div", 1): _Range(0.05),
    ("Reciprocal", 0): _Range(0.05),
}
"""What an operator asks of an input, where random numbers would only make NaN."""


def plausible_range(value: ir.Value) -> tuple[float | None, float | None]:
    """Bounds of a run-time value, from what makes it and from what reads it; None where nothing bounds it."""
    current: ir.Value | None = value
    low = high = None
    for _ in range(16):
        producer = None if current is None else current.producer()
        if producer is None:
            break
        if producer.op_type in _RANGE_AFTER:
            found = _RANGE_AFTER[producer.op_type]
            low, high = found.low, found.high
            break
        if producer.op_type not in _KEEPS_RANGE or not producer.inputs:
            break
        current = producer.inputs[0]
    for use in value.uses():
        asked = _RANGE_FOR.get((use.node.op_type, use.idx))
        if asked is not None and asked.low is not None:
            low = max(asked.low, low or 0.0)
    return low, high


def _index_bound(value: ir.Value) -> int:
    """Integers below this are indices that every reader of the value takes."""
    bounds = [8]
    for use in value.uses():
        if use.node.op_type in ("Gather", "GatherElements", "ScatterElements") and use.idx == 1:
            data = use.node.inputs[0]
            axis = use.node.attributes["axis"].as_int() if "axis" in use.node.attributes else 0
            if data is not None and data.shape is not None and isinstance(data.shape[axis], int):
                bounds.append(int(data.shape[axis]))  # type: ignore[arg-type]
    return max(1, min(bounds))


def random_inputs(values: Sequence[ir.Value], rng: np.random.Generator, *, scale: float = 1.0) -> Arrays:
    """Random arrays for run-time values, within their plausible ranges, by the name of each value."""
    return {value.name or "": random_array(value, rng, scale) for value in values}


def random_array(value: ir.Value, rng: np.random.Generator, scale: float) -> NDArray[Any]:
    """One array for `value`; numbers that nothing bounds are normal, times `scale`.

    Raises NotProvableError for text.
    """
    assert value.shape is not None
    assert value.dtype is not None
    shape = tuple(int(dim) for dim in value.shape)  # type: ignore[arg-type]
    if value.dtype == ir.DataType.STRING:
        raise NotProvableError("text inputs have no random values")
    dtype = np.dtype(value.dtype.numpy())
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if np.issubdtype(dtype, np.integer):
        return rng.integers(0, min(_index_bound(value), 100), shape).astype(dtype)
    low, high = plausible_range(value)
    if low is not None and high is not None:
        return rng.uniform(low, high, shape).astype(dtype)
    array = np.asarray(rng.standard_normal(shape, np.float32) * np.float32(scale))
    if low is not None:
        np.abs(array, out=array)
        array += np.float32(low)
    result: NDArray[Any] = array.astype(dtype)
    return result
