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
from orinport.targets.catalogue import rows_for
from orinport.targets.target import Precision

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orinport.targets.target import RuleRow, Target

__all__ = ["edge_format"]

_STANDALONE = ("J04a", "J04b", "J04c", "J04d", "J04e")
"""Rows on the formats that trtexec gives standalone loadables; one of them holds for a version."""


def edge_format(
    tensor: Tensor,
    readers: Sequence[Layer],
    *,
    on_dla: bool,
    is_input: bool,
    target: Target,
    precision: Precision,
    standalone: bool = False,
) -> IOFormat:
    """The format of one network edge tensor; linear in its own type where the GPU reads or writes it."""
    if not on_dla:
        whole = tensor.dtype in (DType.INT64, DType.BOOL) and not target.stack.strongly_typed
        return IOFormat(tensor.name, DType.INT32 if whole else tensor.dtype, "chw", "the GPU reads or writes it")
    rows = rows_for(target, precision)
    dtype, packed = (DType.INT8, "chw32") if precision is Precision.INT8 else (DType.FP16, "chw16")
    if is_input and _has_image_format(rows, precision, standalone=standalone) and _is_image(tensor, readers, rows):
        return IOFormat(tensor.name, dtype, "dla_hwc4", "an image that only convolutions read")
    return IOFormat(tensor.name, dtype, packed, "native to the DLA and shared with the GPU")


def _has_image_format(rows: Mapping[str, RuleRow], precision: Precision, *, standalone: bool) -> bool:
    """Engines always have it; standalone loadables only from the version on whose trtexec offers it (row J04)."""
    if not standalone:
        return True
    row = next((rows[name] for name in _STANDALONE if name in rows), None)
    offered = () if row is None else row.values[precision.value]
    return isinstance(offered, list) and "hwc4" in offered


def _is_image(tensor: Tensor, readers: Sequence[Layer], rows: Mapping[str, RuleRow]) -> bool:
    """Rows B06 and B07: few channels, and nothing but convolutions of few groups reads it."""
    if "B06" not in rows or "B07" not in rows or tensor.rank != 4 or tensor.shape is None or not readers:
        return False
    channels, groups = rows["B06"].values["allowed"], rows["B07"].values["max_groups"]
    if not isinstance(channels, list) or not isinstance(groups, int) or tensor.shape[1] not in channels:
        return False
    return all(
        reader.kind is LayerKind.CONVOLUTION and reader["groups"] <= groups and reader.inputs[0] == tensor
        for reader in readers
    )
