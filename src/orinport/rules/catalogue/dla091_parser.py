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
No rewrite is applied.

## Source
The operator list of onnx-tensorrt (docs/operators.md) of the version; no row of the catalogue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.rules.finding import Finding, Verdict
from orinport.rules.rule import LayerRule
from orinport.targets.target import Confidence

if TYPE_CHECKING:
    from collections.abc import Iterator

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
            fix=None,
            source=f"onnx-tensorrt docs/operators.md for TensorRT {context.target.stack.tensorrt}",
            confidence=Confidence.DOCUMENTED,
            verdict=Verdict.BLOCKED if certain else Verdict.UNKNOWN,
        )


RULE = NotParsed()
