"""A Resize whose result is given as a size.

## What it checks
The size of the result is given by scales, not by output dimensions: an ONNX Resize carries `scales`, not
`sizes`.

## Why it matters
PyTorch writes `sizes` whenever the model asks for a size, and the DLA refuses the layer although the factor may
be a plain 2.

## Example
Resize with sizes [1, 256, 40, 40] on (1, 256, 20, 20).

## What to do
Write the factor as scales; prepare does so.

## Fix safety
The rewrite resize-sizes-to-scales is exact: it acts where the scales are whole numbers.

## Source
Row Z03: NvInfer.h from 8.2.1 on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.fixes import RESIZE_SIZES_TO_SCALES
from orinport.rules.rule import LayerRule
from orinport.rules.support import finding, resize_scales

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.rules.rule import Context


class ResizeBySizes(LayerRule):
    code = "DLA177"
    title = "Resize is given by sizes instead of scales"
    rows = ("Z03",)
    kinds = (LayerKind.RESIZE,)
    fix = RESIZE_SIZES_TO_SCALES

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        row = context.rows.get("Z03")
        if row is None or layer["scales"] is not None:
            return
        scales = resize_scales(layer)
        result = layer.outputs[0].shape
        whole = scales is not None and all(float(scale).is_integer() for scale in scales)
        yield finding(
            self,
            layer,
            row,
            (
                f"The result is given as a size, {list(result)}"
                if result is not None
                else "The size is known at run time"
            )
            + "; the DLA takes constant scales only"
            + (f", here {', '.join(f'{scale:g}' for scale in scales)}." if scales is not None else "."),
            value="sizes" if layer["by_sizes"] else "run time",
            limit="scales",
            advice="Write the factor as scales." if whole else "Choose a size that is a whole multiple of the input's.",
            fix=RESIZE_SIZES_TO_SCALES if whole else None,
        )


RULE = ResizeBySizes()
