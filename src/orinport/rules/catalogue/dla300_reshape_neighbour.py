"""A reshape directly beside a Slice or a Concatenation.

## What it checks
On Orin, whether a shuffle that reshapes stands directly before or after a Slice or a Concatenation, all of them
taken by themselves. TensorRT looks at this after it has judged each layer. On record for 8.5 and 8.6; for later
versions nobody says whether it still holds: `unknown`.

## Why it matters
Detection heads reshape, slice and concatenate; each by itself may be taken, together they are not.

## Example
Concat, then Reshape to (1, 85, 1, 8400).

## What to do
Leave the reshape out and take the raw heads as outputs, or put a layer between the two.

## Fix safety
The rewrite reshape-to-transpose is exact: a reshape that only moves dimensions of 1 becomes a transpose. It helps from
TensorRT 9 on; older parsers make a reshape of such a transpose again.

## Source
Row N05: builder logs of 8.5 and 8.6: "This version of DLA does not support reshape layers directly connected to
Slice or Concat". Open from 10 on (OP37).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.finding import Verdict
from orinport.rules.fixes import RESHAPE_TO_TRANSPOSE
from orinport.rules.regions import on_dla
from orinport.rules.rule import NetworkRule
from orinport.rules.support import finding, holding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


_JOINTS = frozenset({LayerKind.SLICE, LayerKind.CONCATENATION})


class ReshapeNeighbour(NetworkRule):
    code = "DLA300"
    title = "Reshape directly beside Slice or Concatenation"
    rows = ("N05", "OP37")

    def check(self, layers: Sequence[Layer], context: Context) -> Iterator[Finding]:
        if "N05" not in context.rows:
            return
        rows = holding(context, self.rows)
        undocumented = "OP37" in context.rows
        for layer in layers:
            if layer.kind not in _JOINTS or not on_dla(layer, context):
                continue
            neighbour = _reshape_beside(layer, context)
            if neighbour is None:
                continue
            yield finding(
                self,
                layer,
                rows,
                f"The reshape {neighbour.name!r} is directly connected to this {layer.kind.value.lower()}"
                + (
                    "; the builder refused that in 8.5 and 8.6, and nothing is known of later versions."
                    if undocumented
                    else ", which the builder refuses."
                ),
                value=neighbour.name,
                limit=None,
                advice="Drop the reshape, or put another layer between the two.",
                verdict=Verdict.UNKNOWN if undocumented else Verdict.GPU,
                fix=RESHAPE_TO_TRANSPOSE if undocumented and _moves_ones(neighbour) else None,
            )


def _reshape_beside(layer: Layer, context: Context) -> Layer | None:
    makers = (context.producers.get(tensor.name) for tensor in layer.inputs)
    readers = (reader for tensor in layer.outputs for reader in context.consumers.get(tensor.name, ()))
    for neighbour in (*makers, *readers):
        if neighbour is None or neighbour.kind is not LayerKind.SHUFFLE or not on_dla(neighbour, context):
            continue
        if neighbour["reshape"] is not None:
            return neighbour
    return None


def _moves_ones(layer: Layer) -> bool:
    """True for a reshape from four dimensions to four that puts dimensions of 1 elsewhere and leaves the batch."""
    before, after = layer.inputs[0].shape, layer.outputs[0].shape
    if before is None or after is None or not len(before) == len(after) == _DIMENSIONS or before[0] != after[0]:
        return False
    turned = any(layer.attributes.get(key) is not None for key in ("first_transpose", "second_transpose"))
    return not turned and [size for size in before[1:] if size != 1] == [size for size in after[1:] if size != 1]


_DIMENSIONS = 4

RULE = ReshapeNeighbour()
