"""A layer on which documents contradict each other and that counts as taken.

## What it checks
Leaky ReLU: guides list it, headers do not. Element-wise MIN: headers and guides list it, the operator table of
NVIDIA's DLA software calls it not available. DIV, POW, EQUAL, GREATER and LESS: guides and operator reference
list them, headers up to 11.1 do not. Greater-or-equal: the operator reference takes it beside its two parts, the
operator table does not. The verdict follows the first of each; this note says that there is a doubt.

## Why it matters
If the board refuses such a layer after all, this is why.

## Example
A LeakyRelu on any Orin target.

## What to do
Nothing, as long as the board takes it; otherwise report it.

## Fix safety
No rewrite is applied.

## Source
Rows CF07, CF13, CF14 and CF15: NvInfer.h, developer guides 8.4 and 8.5, operator reference, current documentation,
operator table of NVIDIA/Deep-Learning-Accelerator-SW.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding, is_or_equal, speaking

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context

_POINTS: Mapping[str, tuple[str, ...]] = {
    "LEAKY_RELU": ("CF07", "A01b"),
    "MIN": ("CF13", "E01"),
    "OR": ("CF14", "K09"),
    "DIV": ("CF15", "E03b", "E03c"),
    "POW": ("CF15", "E03b"),
    "EQUAL": ("CF15", "K01a"),
    "GREATER": ("CF15", "K01b", "K01c"),
    "LESS": ("CF15", "K01b", "K01c"),
}
"""The conflict, and the rows that take the operation, by operation."""


class DocumentsDiffer(LayerRule):
    code = "DLA018"
    title = "Documents contradict each other on this layer"
    rows = ("CF07", "CF13", "CF14", "CF15")
    kinds = (LayerKind.ACTIVATION, LayerKind.ELEMENTWISE)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        operation = layer.attributes.get("type") or layer.attributes["op"]
        point = _POINTS.get(operation)
        if point is None:
            return
        row, accept = context.rows.get(point[0]), speaking(context, point[1:])
        if row is None or accept is None:
            return
        if not (is_or_equal(layer, context) if operation == "OR" else operation in accept.values["allowed"]):
            return
        yield finding(
            self,
            layer,
            (row, accept),
            f"{operation} counts as taken. {row.text}",
            value=operation,
            limit=None,
            advice="If the board refuses the layer, this is why; report it.",
            verdict=None,
        )


RULE = DocumentsDiffer()
