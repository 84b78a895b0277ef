"""A SoftMax of a form that the guide of TensorRT 8.4 excludes.

## What it checks
In 8.4.0: batch 1, and every dimension but the axis is 1. The header of 8.4.1 allows more; guide and header
contradict each other, so there it is a note.

## Why it matters
The release in hand may follow either.

## Example
SoftMax over axis 1 of (1, 19, 64, 128) in JetPack 5.0.

## What to do
Use a later release, or apply SoftMax after the network.

## Fix safety
No rewrite is applied.

## Source
Rows M05, CF08 and OP39: developer guide 8.4, NvInfer.h 8.4.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.finding import Verdict
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding, holding, softmax_extent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class Softmax84(LayerRule):
    code = "DLA188"
    title = "SoftMax in TensorRT 8.4"
    rows = ("M05", "CF08", "OP39")
    kinds = (LayerKind.SOFTMAX,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = context.rows.get("M05")
        if row is None:
            return
        data = layer.inputs[0]
        if data.shape is None:  # DLA103 speaks
            return
        if layer["axis"] >= len(data.shape):
            return
        others = softmax_extent(data.shape, layer["axis"])[1]
        if data.batch == row.values["batch"] and others == 1:
            return
        header = context.rows.get("M03")
        yield finding(
            self,
            layer,
            row if header is None else holding(context, ("CF08", "M05", "OP39")),
            f"SoftMax on {list(data.shape)} over axis {layer['axis']}: the guide of TensorRT 8.4 asks for batch"
            f" {row.values['batch']} and 1 in every dimension but the axis"
            + ("." if header is None else "; the header allows more, so documents differ."),
            value=data.shape,
            limit=row.values["batch"],
            advice="Use a later release, or apply SoftMax after the network.",
            verdict=Verdict.GPU if header is None else None,
        )


RULE = Softmax84()
