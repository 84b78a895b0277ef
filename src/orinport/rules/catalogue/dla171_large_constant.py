"""A constant with a value for every position inflates the loadable.

## What it checks
On Orin the constants of Scale and element-wise layers are kept in the loadable as FP19 in 4 bytes a value,
channels padded to 16 (FP16) or 32 (INT8). A constant that varies over height and width is reported with its
size. It is a note, not a refusal.

## Why it matters
Position maps take much more memory and load time than the ONNX file suggests.

## Example
An Add with a constant of shape (1, 3, 640, 640): 52 MB in INT8.

## What to do
Use a constant per channel where that is enough, or feed the map as an input.

## Fix safety
No rewrite is applied.

## Source
Rows O02 and E08: developer guide 8.5, section 12.2.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.rule import LayerRule
from orinport.rules.support import by, finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class LargeConstant(LayerRule):
    code = "DLA171"
    title = "Per-element constant inflates the loadable"
    rows = ("O02", "E08")
    kinds = (LayerKind.ELEMENTWISE, LayerKind.SCALE)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = context.rows.get("O02")
        if row is None:
            return
        if layer.kind is LayerKind.SCALE:
            if layer["mode"] != "ELEMENTWISE":
                return
            chw = layer.inputs[0].chw
        else:
            constants = [tensor for tensor in layer.inputs if tensor.constant]
            if len(constants) != 1 or constants[0].rank != layer.outputs[0].rank or (constants[0].rank or 0) < 3:
                return
            chw = constants[0].chw
        if chw is None or chw[1] * chw[2] == 1:
            return
        multiple = row.values[f"multiple_{context.precision.value}"]
        channels = -(-chw[0] // multiple) * multiple
        size = channels * chw[1] * chw[2] * row.values["bytes"]
        yield finding(
            self,
            layer,
            row,
            f"The constant of {by(chw)} values takes {size:,} bytes of the loadable ({channels} channels,"
            f" {row.values['bytes']} bytes a value).",
            value=size,
            limit=None,
            advice="Use a constant per channel where that is enough.",
            verdict=None,
        )


RULE = LargeConstant()
