"""A Slice that reads beyond the tensor, as Pad does.

## What it checks
Strict bounds up to TensorRT 10.3. From 10.4 on also WRAP, and FILL with the value 0 from a constant that
nothing else reads.

## Why it matters
ONNX Pad becomes a Slice that reads out of bounds, and so does output padding of a deconvolution.

## Example
Pad with mode reflect. The builder says: "DLA does not support out-of-bounds slice operation. Set slice mode to
SliceMode::kDEFAULT to allow the layer to be offloaded to DLA."

## What to do
Move zero padding into the convolution or pooling that reads the tensor.

## Fix safety
The rewrite fuse-pad is exact: zeros around a tensor become the padding of the convolutions and pools that read it.
So are tile-to-concat, pad-to-concat for reflected and repeated borders, and pad-value-to-concat for any number, which
put the rows together by a concatenation.

## Source
Rows V03a, V03b, V03c, V06 and CF17: NvInfer.h from 8.4.1 on; builder log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.fixes import FUSE_PAD, PAD_TO_CONCAT, PAD_VALUE_TO_CONCAT, TILE_TO_CONCAT
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding, slice_extent, speaking

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context

_FILL_INPUT = 1
"""From here on inputs of ISliceLayer are parameters; the one with a single value holds the fill value."""


class SliceMode(LayerRule):
    code = "DLA184"
    title = "Slice that reads out of bounds"
    rows = ("V03a", "V03b", "V03c", "V06", "CF17")
    kinds = (LayerKind.SLICE,)
    fix = FUSE_PAD

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = speaking(context, ("V03a", "V03b", "V03c"))
        if row is None:
            return
        mode, allowed = layer["mode"], row.values["allowed"]
        if mode not in allowed:
            yield finding(
                self,
                layer,
                row,
                f"The slice reads out of bounds ({mode}); the DLA takes {', '.join(allowed)}.",
                value=mode,
                limit=tuple(allowed),
                advice="Move zero padding into the convolution or pooling that reads the tensor.",
                fix=_fix(layer, context),
            )
            return
        if mode != "FILL":
            return
        wanted = row.values["fill_value"]
        shared = [
            tensor.name
            for tensor in layer.inputs[_FILL_INPUT:]
            if tensor.volume == 1 and len(context.consumers.get(tensor.name, ())) > 1
        ]
        if layer["fill_value"] == wanted and not shared:
            return
        yield finding(
            self,
            layer,
            row,
            f"The slice fills with {layer['fill_value']}"
            + (f" from {shared[0]!r}, which other layers read" if shared else "")
            + f"; the DLA takes a constant {wanted} of its own.",
            value=layer["fill_value"],
            limit=wanted,
            advice="Fill with 0 from an initializer of its own, or move the padding into the reader.",
            fix=_fix(layer, context),
        )


def _fix(layer: Layer, context: Context) -> tuple[str, str] | None:
    """The rewrite that puts the rows there in another way; none for samples, and none before the shape is known."""
    if _moves_into_readers(layer, context):
        return FUSE_PAD
    shape, mode = layer.inputs[0].shape, layer["mode"]
    if shape is None or len(shape) != 4 or _is_output_padding(layer, context):
        return None
    starts = [slice_extent(layer, axis, "start") or 0 for axis in range(4)]
    sizes = [slice_extent(layer, axis, "size") for axis in range(4)]
    grown = [size is not None and size != old for size, old in zip(sizes, shape, strict=True)]
    if grown[0] or any(start > 0 for start in starts):
        return None
    if mode == "FILL":
        return PAD_VALUE_TO_CONCAT
    if mode == "WRAP" and not any(starts):
        return TILE_TO_CONCAT
    return None if grown[1] else PAD_TO_CONCAT


def _is_output_padding(layer: Layer, context: Context) -> bool:
    """True if it belongs to the node of the layer in front: output padding of a deconvolution."""
    maker = context.producers.get(layer.inputs[0].name)
    return maker is not None and maker.nodes == layer.nodes


def _moves_into_readers(layer: Layer, context: Context) -> bool:
    """True for a Pad with zeros that only convolutions and pools read; those pad on their own."""
    readers = context.consumers.get(layer.outputs[0].name, ())
    if layer["mode"] != "FILL" or layer["fill_value"] or not readers or layer.outputs[0].name in context.outputs:
        return False
    if _is_output_padding(layer, context):
        return False
    return all(reader.kind in (LayerKind.CONVOLUTION, LayerKind.POOLING) for reader in readers)


RULE = SliceMode()
