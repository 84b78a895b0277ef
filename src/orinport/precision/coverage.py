"""`coverage`: does every tensor of every DLA region have a scale, and what happens where one has none.

With implicit quantisation a tensor without a scale puts the layers around it in FP16, many times slower for a
convolution on Orin, or off the DLA where FP16 is not allowed (row I01).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orinport.precision.complete import hands_back, is_quantisable, keeps
from orinport.precision.constants import HALF_LARGEST
from orinport.precision.findings import absurd_range, missing_scale, unknown_tensor
from orinport.precision.scales import Origin, Scale, Scales

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orinport.model.layer import Layer, Tensor
    from orinport.rules.finding import Finding

__all__ = ["Coverage", "TensorScale", "check_ranges", "check_scales", "coverage"]

_TINY = 1e-7
_FAR = 1e4


@dataclass(frozen=True, slots=True)
class TensorScale:
    """One tensor of a DLA region and its scale."""

    region: int
    """Number of the region among the DLA's, from 0."""
    tensor: Tensor
    scale: Scale | None


@dataclass(frozen=True, slots=True)
class Coverage:
    """The tensors of all DLA regions, the layers that run in FP16 for want of a scale, and the findings on them."""

    tensors: tuple[TensorScale, ...]
    fp16_layers: tuple[Layer, ...]
    findings: tuple[Finding, ...]

    @property
    def covered(self) -> int:
        """Number of tensors that have a scale."""
        return sum(row.scale is not None for row in self.tensors)

    @property
    def complete(self) -> bool:
        """Every tensor has one."""
        return self.covered == len(self.tensors)


def coverage(scales: Scales, regions: Sequence[Sequence[Layer]]) -> Coverage:
    """Coverage of DLA regions, each given by its layers."""
    rows: list[TensorScale] = []
    layers: list[Layer] = []
    findings: list[Finding] = []
    for number, region in enumerate(regions):
        seen: set[str] = set()
        for layer in region:
            lacking = []
            for tensor in _tensors(layer):
                scale = scales.get(tensor.name)
                if tensor.name not in seen:
                    rows.append(TensorScale(number, tensor, scale))
                    seen.add(tensor.name)
                if scale is None:
                    lacking.append(tensor.name)
            if lacking:
                layers.append(layer)
                findings.append(missing_scale(layer, list(dict.fromkeys(lacking)), number))
    return Coverage(tuple(rows), tuple(layers), tuple(findings))


def _tensors(layer: Layer) -> Iterator[Tensor]:
    for tensor in (*layer.inputs, *layer.outputs):
        if is_quantisable(tensor):
            yield tensor


def check_scales(scales: Scales, layers: Sequence[Layer]) -> tuple[Finding, ...]:
    """What speaks against scales from a file: names that the network does not have, ranges that make no sense."""
    known = {tensor.name for layer in layers for tensor in (*layer.inputs, *layer.outputs)}
    unknown = [name for name in scales.tensors if name not in known]
    return (*([unknown_tensor(unknown)] if unknown else []), *check_ranges(scales, layers))


def check_ranges(scales: Scales, layers: Sequence[Layer]) -> tuple[Finding, ...]:
    """Ranges that make no sense, wherever the scales come from."""
    findings: list[Finding] = []
    running = [layer for layer in layers if layer.inputs]
    for name in dict.fromkeys(t.name for each in running for t in (*each.runtime_inputs, *each.outputs)):
        scale = scales.get(name)
        if scale is not None and (why := _absurd(scale)):
            findings.append(absurd_range(name, scale.range, why))
    for layer in running:
        findings += _cut_off(layer, scales)
    return tuple(findings)


def _absurd(scale: Scale) -> str:
    if scale.origin in (Origin.FUSED, Origin.FREE):
        return ""
    if scale.range > HALF_LARGEST:
        return f"more than FP16 can hold ({HALF_LARGEST:g}), so the tensor cannot be meant to run on the DLA"
    if scale.range < _TINY:
        return "so small that FP16 rounds it to a few steps"
    return ""


def _cut_off(layer: Layer, scales: Scales) -> list[Finding]:
    """Neighbours whose ranges differ so much that one of them is wrong, where values are only handed on."""
    if not layer.inputs or not (keeps(layer) and hands_back(layer)):
        return []
    before, after = scales.get(layer.inputs[0].name), scales.get(layer.outputs[0].name)
    if before is None or after is None or Origin.FREE in (before.origin, after.origin):
        return []
    ratio = max(before.value, after.value) / min(before.value, after.value)
    if ratio < _FAR or Origin.FUSED in (before.origin, after.origin):
        return []
    name = layer.outputs[0].name
    return [
        absurd_range(
            name, after.range, f"{layer.inputs[0].name!r}, which holds the same values, has {before.range:.3g}"
        )
    ]
