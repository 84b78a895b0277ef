"""The memory format of a network input or output, so that an all-DLA network needs no GPU reformat.

Formats that the DLA takes (TensorRT 8.5 Developer Guide, 12.4; NvInferRuntimeBase.h, TensorFormat):
inputs kDLA_LINEAR, kDLA_HWC4, kCHW16 (FP16), kCHW32 (INT8); outputs the same without kDLA_HWC4. kCHW16
and kCHW32 are shared by GPU and DLA, so nothing has to be converted at a boundary between them.
kDLA_HWC4 saves the padding of an image with few channels; its reader has to be a convolution with at
most four groups that computes in the precision of the input.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import DType, Layer, LayerKind, Tensor
from orinport.placement.placement import IOFormat
from orinport.targets.target import Precision

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orinport.targets.target import Target

__all__ = ["edge_format"]

_HWC4_CHANNELS = (1, 3, 4)
_HWC4_GROUPS = 4


def edge_format(
    tensor: Tensor,
    readers: Sequence[Layer],
    *,
    on_dla: bool,
    is_input: bool,
    target: Target,
    precision: Precision,
) -> IOFormat:
    """The format of one network edge tensor; linear in its own type where the GPU reads or writes it."""
    if not on_dla:
        dtype = DType.INT32 if tensor.dtype in (DType.INT64, DType.BOOL) else tensor.dtype
        if target.stack.strongly_typed:
            dtype = tensor.dtype
        return IOFormat(tensor.name, dtype, "chw", "the GPU reads or writes it")
    dtype, packed = (DType.INT8, "chw32") if precision is Precision.INT8 else (DType.FP16, "chw16")
    if is_input and _hwc4_fits(tensor, readers):
        return IOFormat(tensor.name, dtype, "dla_hwc4", "an image that only convolutions read")
    return IOFormat(tensor.name, dtype, packed, "native to the DLA and shared with the GPU")


def _hwc4_fits(tensor: Tensor, readers: Sequence[Layer]) -> bool:
    """Rules B06 and B07: 1, 3 or 4 channels, read by convolutions with at most 4 groups only."""
    if tensor.rank != 4 or tensor.shape is None or tensor.shape[1] not in _HWC4_CHANNELS or not readers:
        return False
    return all(
        reader.kind is LayerKind.CONVOLUTION and reader["groups"] <= _HWC4_GROUPS and reader.inputs[0] == tensor
        for reader in readers
    )
