"""The image format is not offered to standalone loadables.

## What it checks
In a standalone build, whether trtexec of this TensorRT version offers DLA_HWC4 for an image input. Up to 8.6.0 it
does not. It is a note.

## Why it matters
The input then has to be given in CHW16 (FP16) or CHW32 (INT8), its channels padded.

## Example
An image input of 3 channels, standalone, on jp5.1.

## What to do
Give the input in CHW16 or CHW32, or use JetPack 6.

## Fix safety
No rewrite is applied.

## Source
Rows J04a to J04e (samples/common/sampleOptions.cpp of trtexec 8.2.1, 8.4.3, 8.5.3, 8.6.1, 10.16 and 11.1) and J09
(TensorRT 8.4 Developer Guide 12.5). In 8.4 two sections of the guide name the formats differently (CF16).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.regions import network_finding, on_dla
from orinport.rules.rule import NetworkRule
from orinport.rules.support import speaking

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class StandaloneFormats(NetworkRule):
    code = "DLA212"
    title = "Standalone loadables have no image format here"
    rows = ("J04a", "J04b", "J04c", "J04d", "J04e", "J09", "J02c", "CF16")

    def check(self, layers: Sequence[Layer], context: Context) -> Iterator[Finding]:
        row = speaking(context, ("J04a", "J04b", "J04c", "J04d", "J04e"))
        if not context.standalone or row is None:
            return
        formats = row.values[context.precision.value]
        if "hwc4" in formats:
            return
        channels = context.rows["B06"].values["allowed"]
        for layer in layers:
            if layer.kind is not LayerKind.CONVOLUTION or not on_dla(layer, context):
                continue
            tensor = layer.inputs[0]
            if tensor.name not in context.inputs or tensor.rank != 4 or tensor.chw is None:
                continue
            if tensor.chw[0] not in channels:
                continue
            yield network_finding(
                self,
                (row,),
                f"The image input {tensor.name!r} of {tensor.chw[0]} channels cannot be DLA_HWC4: trtexec"
                f" {context.target.stack.tensorrt} offers {', '.join(formats)} to standalone loadables.",
                value=tensor.chw[0],
                limit=list(formats),
                advice=f"Give it as {formats[-1]}.",
                verdict=None,
            )


RULE = StandaloneFormats()
