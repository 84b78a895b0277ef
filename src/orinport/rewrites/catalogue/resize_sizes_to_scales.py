"""`Resize(x, sizes) -> Resize(x, scales)`: a resize by whole factors says them as scales.

## What it does
A Resize that names the output's size, or only some axes, gets one scale for each of four dimensions instead. Only where
every scale is a whole number, so that sizes and sampling positions stay exactly the same.

## Why
The DLA takes a resize with exactly four scales, and refuses one by output dimensions.

## Example
`Resize((1, 16, 20, 20), sizes=(1, 16, 40, 40))`: scales `(1, 1, 2, 2)`.

## Refused
Scales that are not whole numbers; sizes that are known at run time only; `tf_crop_and_resize`; an aspect ratio policy
other than stretch; tensors that are not 4-D.

## Safety
exact: the same samples.

## Source
Rows Z01 and Z03 of the acceptance catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "ResizeSizesToScales"]


class ResizeSizesToScales(Rewrite):
    """Resize by sizes becomes resize by four whole scales."""

    name = "resize-sizes-to-scales"
    safety = Safety.EXACT
    op_types = ("Resize",)

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        sizes = context.input(node, 3)
        axes = context.attribute(node, "axes")
        if context.opset < 11 or (sizes is None and axes is None):
            return None
        value, output = node.inputs[0], node.outputs[0]
        before, after = context.shape(value), context.shape(output)
        if before is None or after is None or (sizes is not None and not context.is_constant(sizes)):
            return Refusal("the sizes are known at run time only")
        if len(before) != 4 or 0 in before:
            return Refusal(f"the tensor has {len(before)} dimensions" if 0 not in before else "it holds no elements")
        if context.attribute(node, "coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize":
            return Refusal("tf_crop_and_resize reads a region of interest")
        if context.attribute(node, "keep_aspect_ratio_policy", "stretch") != "stretch":
            return Refusal("the aspect ratio is kept, so the sizes are not the output's")
        if any(new % old for new, old in zip(after, before, strict=True)):
            ratios = ", ".join(f"{new}/{old}" for new, old in zip(after, before, strict=True) if new % old)
            return Refusal(f"the scale {ratios} is not a whole number")
        if sizes is None and not _whole(context.constant(context.input(node, 2))):
            return Refusal("the scales are not whole numbers")
        scales = tuple(new // old for new, old in zip(after, before, strict=True))
        return Match((node,), (output,), scales)

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        node = match.nodes[0]
        scales = builder.constant(np.asarray(match.data, np.float32), "scales")
        roi = builder.constant(np.zeros(0, np.float32), "roi") if builder.context.opset < 13 else None
        kept: dict[str, Any] = {
            name: attribute
            for name, attribute in node.attributes.items()
            if name not in ("axes", "keep_aspect_ratio_policy")
        }
        output = match.outputs[0]
        return (
            builder.op(
                "Resize",
                node.inputs[0],
                roi,
                scales,
                shape=builder.shape(output),
                dtype=builder.context.dtype(output),
                **kept,
            ),
        )


def _whole(scales: object) -> bool:
    return isinstance(scales, np.ndarray) and bool(np.all(scales == np.round(scales)))


REWRITE = ResizeSizesToScales()
