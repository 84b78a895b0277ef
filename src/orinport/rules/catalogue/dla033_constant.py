"""A constant that is a layer of its own.

## What it checks
A constant has to be folded into the layer that reads it. One that is an output of the network is refused. Without
GPU fallback, and in a standalone loadable, a constant that stays is refused, and when it is folded is not
documented: `unknown`. Elsewhere this is a note: the constant goes where its readers go.

## Why it matters
Real logs show constants sent to the GPU; a standalone build ends at the first.

## Example
An Add with an initializer that is not folded into a Scale.

## What to do
Fold the constant into the convolution before it, allow GPU fallback while building, or make it an input.

## Fix safety
The rewrite fuse-scale-into-conv is exact up to rounding: a constant per channel behind a convolution goes into its
weights and bias.

## Source
Rows X03 and OP47: operator table of NVIDIA/Deep-Learning-Accelerator-SW, builder logs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.finding import Verdict
from orinport.rules.fixes import FUSE_SCALE_INTO_CONV
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding, fuses_into_convolution, holding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class Constant(LayerRule):
    code = "DLA033"
    title = "Constant layer"
    rows = ("X03", "OP47")
    kinds = (LayerKind.CONSTANT,)
    fix = FUSE_SCALE_INTO_CONV

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        rows = holding(context, self.rows)
        name = layer.outputs[0].name
        if name in context.outputs:
            yield finding(
                self,
                layer,
                rows,
                f"The constant {name!r} is an output of the network; the DLA has no constants of its own.",
                value="network output",
                limit="folded into a layer",
                advice="Drop the output: its value is known before the network runs.",
            )
            return
        readers = context.consumers.get(name, ())
        yield finding(
            self,
            layer,
            rows,
            "Without GPU fallback a constant has to be folded into its reader, and it is not documented when one is."
            if not context.gpu_fallback
            else "The constant has to be folded into its reader, which may need GPU fallback while building.",
            value=layer.attributes.get("values"),
            limit="folded into a layer",
            advice="Fold it into the convolution before, or make it an input.",
            verdict=None if context.gpu_fallback else Verdict.UNKNOWN,
            fix=FUSE_SCALE_INTO_CONV
            if readers and all(fuses_into_convolution(reader, context) for reader in readers)
            else None,
        )


RULE = Constant()
