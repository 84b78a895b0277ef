"""Constant choices along one axis: indices, their runs, and Slice and Concat that make them bit by bit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orinport.rewrites.builder import RefusedError
from orinport.rewrites.rewrite import Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir
    from numpy.typing import NDArray

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["Run", "assemble", "constant_indices", "runs_of", "stretches_of", "take"]

Run = tuple[bool, int, int]
"""From the first of two values or the second, and (first, end) along the axis."""


def constant_indices(node: ir.Node, context: RewriteContext) -> NDArray[np.int64] | Refusal:
    """The indices of a Gather as one row of numbers from 0 on; a scalar gives one."""
    indices, shape = context.constant(context.input(node, 1)), context.shape(node.inputs[0])
    if indices is None:
        return Refusal("the indices are known at run time only")
    if shape is None:
        return Refusal("the shape is not known")
    if indices.size == 0 or 0 in shape:
        return Refusal("it gives no elements")
    size = shape[int(context.attribute(node, "axis", 0)) % len(shape)]
    flat = indices.reshape(-1).astype(np.int64)
    if flat.min() < -size or flat.max() >= size:
        return Refusal(f"an index lies outside {size} elements")
    return np.where(flat < 0, flat + size, flat)


def runs_of(indices: Sequence[int]) -> list[tuple[int, int]]:
    """(first, end) of each stretch of indices that count upwards, in order."""
    runs: list[tuple[int, int]] = []
    for index in indices:
        if runs and runs[-1][1] == index:
            runs[-1] = (runs[-1][0], index + 1)
        else:
            runs.append((int(index), int(index) + 1))
    return runs


def take(builder: Builder, value: ir.Value, axis: int, indices: Sequence[int]) -> ir.Value:
    """The elements `indices` of a 4-D value along C, H or W: slices, and their concatenation along the channels.

    Where there is something to concatenate, another axis changes places with the channels meanwhile. Raises
    RefusedError past the largest number of slices.
    """
    runs = runs_of(indices)
    most = int(builder.context.figure("selection", "slices"))
    if len(runs) > most:
        raise RefusedError(f"it would need {len(runs)} slices, more than {most}")
    size = builder.shape(value)[axis]
    if len(runs) == 1:
        return value if runs[0] == (0, size) else builder.slice(value, axis, *runs[0])
    swap = [0, 1, 2, 3]
    swap[1], swap[axis] = swap[axis], swap[1]
    moved = builder.transpose(value, swap)
    made: dict[tuple[int, int], ir.Value] = {}
    for run in runs:
        if run not in made:
            made[run] = moved if run == (0, size) else builder.slice(moved, 1, *run)
    joined = builder.op("Concat", *(made[run] for run in runs), axis=1)
    return builder.transpose(joined, swap)


def stretches_of(places: Sequence[tuple[bool, int]]) -> list[Run]:
    """The elements (of the first value or not, index) as stretches that count upwards in one value."""
    runs: list[Run] = []
    for flag, index in places:
        if runs and runs[-1][0] == flag and runs[-1][2] == index:
            runs[-1] = (flag, runs[-1][1], index + 1)
        else:
            runs.append((flag, index, index + 1))
    return runs


def assemble(builder: Builder, first: ir.Value, second: ir.Value, axis: int, runs: Sequence[Run]) -> ir.Value:
    """Stretches of two 4-D values side by side along C, H or W; several of them. Constants are cut beforehand."""
    swap = [0, 1, 2, 3]
    swap[1], swap[axis] = swap[axis], swap[1]
    values = {True: first, False: second}
    moved = {
        flag: value if builder.context.is_constant(value) else builder.transpose(value, swap)
        for flag, value in values.items()
    }
    parts = []
    for flag, begin, end in runs:
        constant = builder.context.constant(values[flag])
        if constant is not None:
            parts.append(builder.constant(constant.take(range(begin, end), axis).transpose(swap), "rows"))
        elif (begin, end) == (0, builder.shape(moved[flag])[1]):
            parts.append(moved[flag])
        else:
            parts.append(builder.slice(moved[flag], 1, begin, end))
    return builder.transpose(builder.op("Concat", *parts, axis=1), swap)
