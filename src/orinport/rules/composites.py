"""Operators that the parser makes several layers of, and the rewrites that replace them as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.fixes import LOG_SOFTMAX_TO_SOFTMAX, LP_NORMALIZATION_TO_DIV, MEAN_VARIANCE_TO_DIV
from orinport.rules.support import takes_division
from orinport.targets.target import Precision

if TYPE_CHECKING:
    from orinport.model.layer import Layer
    from orinport.rules.rule import Context

__all__ = ["fix_of"]

_MEANS = 2
"""Reductions of a MeanVarianceNormalization: the mean, and that of the squares."""


def fix_of(layer: Layer, context: Context, own: tuple[str, str] | None) -> tuple[str, str] | None:
    """The rewrite of the operator that `layer` is a part of; `own`, that of the layer, where it stands for itself."""
    parts = _parts(layer, context)
    operations = [(part.kind, part.attributes.get("op")) for part in parts]
    if (LayerKind.UNARY, "LOG") in operations and any(part.kind is LayerKind.SOFTMAX for part in parts):
        taken = takes_division(context) and context.precision is not Precision.INT8
        return LOG_SOFTMAX_TO_SOFTMAX if taken else None
    reductions = sum(part.kind is LayerKind.REDUCE for part in parts)
    if reductions and (LayerKind.ELEMENTWISE, "DIV") in operations:
        whole = MEAN_VARIANCE_TO_DIV if reductions == _MEANS else LP_NORMALIZATION_TO_DIV
        return whole if takes_division(context) else None
    return own


def _parts(layer: Layer, context: Context) -> list[Layer]:
    """The layers that the parser makes of the same node, this one included."""
    found = {layer.index: layer}
    stack = [layer]
    while stack:
        current = stack.pop()
        makers = [context.producers.get(tensor.name) for tensor in current.inputs]
        readers = [reader for tensor in current.outputs for reader in context.consumers.get(tensor.name, ())]
        for other in (*makers, *readers):
            if other is not None and other.nodes == layer.nodes and other.index not in found:
                found[other.index] = other
                stack.append(other)
    return list(found.values())
