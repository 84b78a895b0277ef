"""A Cast or an Identity that does not follow a comparison.

## What it checks
A Cast right behind a comparison is taken in INT8 from TensorRT 8.5 on. Every other Cast, and every Identity, is
probably run on the GPU or as a conversion at the edge; nobody documents it: `unknown`.

## Why it matters
Casts to FP16 and back, left over from mixed-precision export, cut the network into pieces.

## Example
A Cast to FLOAT16 at the input of an FP16 model; an Identity left over from dropout.

## What to do
Remove it: the precision on the DLA is set when building (up to TensorRT 10), so a Cast between floating-point
types says nothing.

## Fix safety
The rewrite remove-identity is exact: it removes nodes that change neither value nor type.

## Source
Rows X04a, X04b and OP46: developer guide 8.5; the rest is inferred from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.finding import Verdict
from orinport.rules.fixes import REMOVE_IDENTITY
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding, holding, is_cast_on_dla

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class Cast(LayerRule):
    code = "DLA034"
    title = "Cast or Identity outside of the comparison pattern"
    rows = ("X04a", "X04b", "OP46")
    kinds = (LayerKind.CAST, LayerKind.IDENTITY)
    fix = REMOVE_IDENTITY

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        source = layer.inputs[0]
        producer = context.producers.get(source.name)
        if producer is not None and "X04a" in context.rows and is_cast_on_dla(producer, context):
            return
        same = layer.outputs[0].dtype is source.dtype
        yield finding(
            self,
            layer,
            holding(context, ("X04b", "OP46")),
            f"{'Identity' if same else 'Cast'} from {source.dtype.value} to {layer.outputs[0].dtype.value}: documents"
            " take it only right behind a comparison in INT8.",
            value=f"{source.dtype.value} to {layer.outputs[0].dtype.value}",
            limit="behind a comparison",
            advice="Remove it."
            if same
            else "Remove it if the type does not matter; TensorRT picks the precision itself up to 10.x.",
            verdict=Verdict.UNKNOWN,
            fix=REMOVE_IDENTITY if same else None,
        )


RULE = Cast()
