"""`mark_fused`: the scale 1.0 on a convolution's output that has none, where an addition follows at once.

From DLA software 3.13 on the DLA's compiler fuses such a convolution with the addition, in INT8, if it finds no scale
of its own between them; TensorRT would put both in FP16. 1.0 stands for "none" there, provided that the other operand
of the addition has a scale. Without that condition the convolution's output would be rounded to whole numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.precision.findings import fused_convolution
from orinport.precision.scales import Origin, Scale, Scales
from orinport.targets.catalogue import rows_for
from orinport.targets.target import Precision
from orinport.targets.version import Version

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.targets.target import Target

__all__ = ["mark_fused"]

_ROW = "I14"


def mark_fused(scales: Scales, layers: Sequence[Layer], outputs: Collection[str], target: Target) -> Scales:
    """`scales` with 1.0 for convolutions that have none and one addition as their only reader.

    `layers` are those of the DLA. Of two convolutions that meet in one addition none is marked: each is the other's
    other operand.
    """
    if not _holds(target):
        return scales
    readers: dict[str, list[Layer]] = {}
    makers: dict[str, Layer] = {}
    for layer in layers:
        for tensor in layer.runtime_inputs:
            readers.setdefault(tensor.name, []).append(layer)
        for tensor in layer.outputs:
            makers[tensor.name] = layer
    marked: dict[str, Scale] = {}
    findings: list[Finding] = []
    for layer in layers:
        if layer.kind is not LayerKind.ELEMENTWISE or layer["op"] != "SUM" or len(layer.runtime_inputs) != 2:
            continue
        lacking = [tensor.name for tensor in layer.runtime_inputs if tensor.name not in scales]
        given = [tensor.name for tensor in layer.runtime_inputs if tensor.name in scales]
        if len(lacking) != 1 or len(given) != 1 or lacking[0] in outputs or len(readers[lacking[0]]) != 1:
            continue
        maker = makers.get(lacking[0])
        if maker is not None and maker.kind is LayerKind.CONVOLUTION:
            marked[lacking[0]] = Scale(1.0, Origin.FUSED, given[0])
            findings.append(fused_convolution(maker, lacking[0], given[0]))
    return scales.merged(marked, findings)


def _holds(target: Target) -> bool:
    row = rows_for(target, Precision.INT8).get(_ROW)
    if row is None:
        return False
    return target.stack.dla is None or target.stack.dla >= Version.parse(row.values["dla_software"])
