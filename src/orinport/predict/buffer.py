"""The convolution buffer: how often a convolution reads its input and its weights from memory.

Input rows and weights share the buffer's banks. What fits is tried in the order of the open compiler
(nvdla/sw ConvCoreNode.cpp, splitNodesInternal): the whole input with all weights, with two kernel groups in
turn (ping-pong), with one; then only some rows of the input, and all weights once more for every such
strip. The open compiler splits rows, never kernels. The size of Orin's buffer is not published; 16 banks of
32 KiB fit what is known (TensorRT issue 3499, and the network totals of DLA-SW's README).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

__all__ = ["BufferSize", "BufferUse", "buffer_use"]


@dataclass(frozen=True, slots=True)
class BufferSize:
    """Banks of the buffer and bytes of each."""

    banks: int
    bank_bytes: int

    def needed(self, size: float) -> int:
        """Banks that `size` bytes take."""
        return ceil(size / self.bank_bytes)


@dataclass(frozen=True, slots=True)
class BufferUse:
    """How a convolution goes through the buffer.

    `strips`: parts of the input's height that are computed one after the other, each reading all weights.
    `input_bytes`: input read with the rows that neighbouring strips share; `weight_bytes`: weights read for
    one image; `weights_stay`: they need not be read again for the next image of a batch.
    """

    mode: str
    strips: int
    input_bytes: int
    weight_bytes: int
    weights_stay: bool


def buffer_use(
    *,
    row_bytes: int,
    rows: int,
    output_rows: int,
    kernel_rows: int,
    stride_rows: int,
    weight_bytes: int,
    group_bytes: int,
    size: BufferSize,
) -> BufferUse:
    """The first mode that fits.

    `row_bytes`: one row of the padded input over all channels; `group_bytes`: weights of one kernel group.
    A convolution that not even one kernel group and its rows fit is taken to go row by row.
    """
    input_bytes = row_bytes * rows
    data, weights, group = size.needed(input_bytes), size.needed(weight_bytes), size.needed(group_bytes)
    if data + weights <= size.banks:
        return BufferUse("input and weights", 1, input_bytes, weight_bytes, True)
    if data + 2 * group <= size.banks:
        return BufferUse("input, two kernel groups", 1, input_bytes, weight_bytes, False)
    if data + group <= size.banks:
        return BufferUse("input, one kernel group", 1, input_bytes, weight_bytes, False)
    if size.needed(row_bytes * kernel_rows) + weights <= size.banks:
        return BufferUse("rows, all weights", 1, input_bytes, weight_bytes, True)
    for groups in (2, 1):
        held = (size.banks - groups * group) * size.bank_bytes // row_bytes
        if held >= kernel_rows:
            strips = ceil(output_rows / ((held - kernel_rows) // stride_rows + 1))
            read = max(input_bytes, min(held, rows) * row_bytes * strips)
            return BufferUse(
                f"rows, {'two kernel groups' if groups == 2 else 'one kernel group'}",
                strips,
                read,
                weight_bytes * strips,
                False,
            )
    return BufferUse("row by row", output_rows, input_bytes * kernel_rows, weight_bytes * output_rows, False)
