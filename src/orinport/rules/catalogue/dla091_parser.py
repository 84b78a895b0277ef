"""An operator that TensorRT's parser does not take.

## What it checks
Whether the parser of this TensorRT version makes anything of an ONNX operator. If not, the network cannot be
built, neither for the DLA nor for the GPU. Where only a shape that could not be found out stands in the way,
the layer is unknown instead.

## Why it matters
The build ends at this node, whatever is said about the others.

## Example
An operator of a newer opset than the parser knows, or a custom operator without a plugin.

## What to do
Replace the operator by others, or give it a plugin.

## Fix safety
The rewrites attention-to-products, rotary-to-slices and swish-to-sigmoid are exact: they write operators of opsets 23
and 24 in older ones. RMSNormalization becomes layers of the DLA by layer-norm-to-pow (exact, INT8 from TensorRT 10.3
on) or layer-norm-to-div (within a stated error, with consent).

## Source
The operator list of onnx-tensorrt (docs/operators.md) of the version; no row of the catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.finding import Finding, Fix, Verdict
from orinport.rules.fixes import (
    ATTENTION_TO_PRODUCTS,
    LAYER_NORM_TO_DIV,
    LAYER_NORM_TO_POW,
    ROTARY_TO_SLICES,
    SWISH_TO_SIGMOID,
)
from orinport.rules.rule import LayerRule
from orinport.rules.support import takes_division, takes_power
from orinport.targets.target import Confidence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orinport.model.layer import Layer
    from orinport.rules.rule import Context


class NotParsed(LayerRule):
    code = "DLA091"
    title = "TensorRT's parser does not take this operator"
    rows = ()
    kinds = (LayerKind.UNSUPPORTED,)

    def check(self, layer: Layer, context: Context) -> Iterator[Finding]:
        operator = f"{layer['domain']}::{layer['op_type']}" if layer["domain"] else layer["op_type"]
        reason = layer["reason"].rstrip(".")
        certain = layer.attributes.get("certain", True)
        says = "cannot parse" if certain else "may not be able to parse"
        yield Finding(
            code=self.code,
            layer=layer.name,
            nodes=layer.nodes,
            message=f"TensorRT {context.target.stack.tensorrt} {says} {operator}: {reason}.",
            value=operator,
            limit=None,
            help="Replace it by operators that the parser takes, or write a plugin for it."
            if certain
            else "Export the network with fixed shapes, so that this can be told.",
            fix=_fix(layer["op_type"], context) if certain and not layer["domain"] else None,
            source=f"onnx-tensorrt docs/operators.md for TensorRT {context.target.stack.tensorrt}",
            confidence=Confidence.DOCUMENTED,
            verdict=Verdict.BLOCKED if certain else Verdict.UNKNOWN,
        )


_FIXES: Mapping[str, tuple[str, str]] = {
    "Attention": ATTENTION_TO_PRODUCTS,
    "RotaryEmbedding": ROTARY_TO_SLICES,
    "Swish": SWISH_TO_SIGMOID,
}


def _fix(op_type: str, context: Context) -> Fix | None:
    if op_type == "RMSNormalization" and takes_power(context):
        return Fix(*LAYER_NORM_TO_POW)
    if op_type == "RMSNormalization" and takes_division(context):
        return Fix(*LAYER_NORM_TO_DIV)
    return Fix(*_FIXES[op_type]) if op_type in _FIXES else None


RULE = NotParsed()
