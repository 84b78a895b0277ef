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
So are tile-to-concat and, for reflected and repeated borders, pad-to-concat.

## Source
Rows V03a, V03b, V03c, V06 and CF17: NvInfer.h from 8.4.1 on; builder log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.fixes import FUSE_PAD
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding, speaking

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
                fix=FUSE_PAD if _moves_into_readers(layer, context) else None,
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
        )


def _moves_into_readers(layer: Layer, context: Context) -> bool:
    """True for a Pad with zeros that only convolutions and pools read; those pad on their own."""
    readers = context.consumers.get(layer.outputs[0].name, ())
    maker = context.producers.get(layer.inputs[0].name)
    if layer["mode"] != "FILL" or layer["fill_value"] or not readers or layer.outputs[0].name in context.outputs:
        return False
    if maker is not None and maker.nodes == layer.nodes:  # output padding of a deconvolution
        return False
    return all(reader.kind in (LayerKind.CONVOLUTION, LayerKind.POOLING) for reader in readers)


RULE = SliceMode()
