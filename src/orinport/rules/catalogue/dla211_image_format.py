"""An image input that cannot use the DLA's image format.

## What it checks
Network inputs of 1, 3 or 4 channels whose reader is not a convolution of at most 4 groups. Such an input cannot
use DLA_HWC4. It is a note.

## Why it matters
In CHW16 or CHW32 the channels are padded to the next 32 bytes: an image of 3 channels takes 5 times (FP16) or 10
times (INT8) its size.

## Example
A network that starts with a normalisation (Sub, Div) instead of a convolution.

## What to do
Fold the normalisation into the first convolution.

## Fix safety
No rewrite is applied.

## Source
Rows B03, B06, B07, C08: TensorRT 8.4 and 8.5 Developer Guides, NvInfer.h 8.4.1 to 11.1. On the stride of its rows
the documents differ (CF09). B08 (FAQ of NVIDIA/Deep-Learning-Accelerator-SW): the convolution computes in the
precision of the input.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.regions import on_dla
from orinport.rules.rule import NetworkRule
from orinport.rules.support import finding, holding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class ImageFormat(NetworkRule):
    code = "DLA211"
    title = "Image input cannot use the image format"
    rows = ("B03", "B06", "B07", "B08", "C08", "CF09")

    def check(self, layers: Sequence[Layer], context: Context) -> Iterator[Finding]:
        image, reader_row = context.rows.get("B06"), context.rows.get("B07")
        if image is None or reader_row is None:
            return
        for layer in layers:
            for tensor in layer.inputs:
                if tensor.name not in context.inputs or tensor.rank != 4 or tensor.chw is None:
                    continue
                if tensor.chw[0] not in image.values["allowed"] or not on_dla(layer, context):
                    continue
                if _reads_images(layer, reader_row.values["max_groups"]):
                    continue
                groups = f" of {layer['groups']} groups" if layer.kind is LayerKind.CONVOLUTION else ""
                yield finding(
                    self,
                    layer,
                    holding(context, ("B03", "B06", "B07")),
                    f"The input {tensor.name!r} of {tensor.chw[0]} channels is read by {layer.kind.value}{groups}; the"
                    f" image format wants a convolution of at most {reader_row.values['max_groups']} groups, so the"
                    f" channels are padded to {_vector(context)}.",
                    value=layer["groups"] if groups else layer.kind.value,
                    limit=reader_row.values["max_groups"],
                    advice="Let a convolution read the image first.",
                    verdict=None,
                )


def _reads_images(reader: Layer, max_groups: int) -> bool:
    return reader.kind is LayerKind.CONVOLUTION and reader["groups"] <= max_groups


def _vector(context: Context) -> int:
    """Channels of one vector of CHW16 or CHW32."""
    size: int = context.rows["G13"].values["element_bytes"][context.precision.value]
    alignment: int = context.rows["B03"].values["alignment_bytes"]
    return alignment // size


RULE = ImageFormat()
