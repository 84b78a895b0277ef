"""Raising the opset to 13, where Softmax means one dimension and can be a DLA layer.

Below opset 13 Softmax flattens its input to two dimensions, and the parser keeps the two reshapes. Operators whose
definition did not change in between, or only took more types and optional attributes, stay as they are; a few are
written in their new form; any other keeps the network at its opset.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import onnx

from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["RAISED", "RaiseOpset", "raise_refusal"]

RAISED = 13

_EXTENDED = frozenset(
    {
        "Abs", "Add", "And", "ArgMax", "ArgMin", "AveragePool", "Cast", "Ceil", "Compress", "Concat", "Constant",
        "Conv", "ConvTranspose", "DepthToSpace", "DequantizeLinear", "Div", "Equal", "Erf", "Exp", "Expand", "Flatten",
        "Floor", "Gather", "GatherElements", "GatherND", "Gemm", "Greater", "Identity", "If", "IsNaN", "LRN", "Less",
        "Log", "Loop", "LpPool", "MatMul", "Max", "MaxPool", "Mean", "MeanVarianceNormalization", "Min", "Mod", "Mul",
        "Neg", "NonZero", "OneHot", "Pow", "QuantizeLinear", "Reciprocal", "ReduceL1", "ReduceL2", "ReduceLogSum",
        "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSumSquare", "Relu", "Reshape",
        "Scan", "ScatterElements", "ScatterND", "Shape", "Sigmoid", "Sign", "Size", "SpaceToDepth", "Sqrt", "Sub",
        "Sum", "Tanh", "Tile", "Transpose",
    }
)  # fmt: skip
"""Changed between 7 and 13 in types, negative axes and optional attributes with the old meaning as default only."""

_EXTENDED_FROM = {"Clip": 11, "CumSum": 11, "Pad": 11, "Resize": 11, "Slice": 10}
"""The same for those whose operands became inputs in this version."""

_ADAPTED = frozenset({"Clip", "Dropout", "LogSoftmax", "Softmax", "Split", "Squeeze", "Unsqueeze", "ReduceSum"})


def raise_refusal(context: RewriteContext) -> Refusal | None:
    """Why the network has to stay at its opset; None if it can be raised."""
    for node in context.graph.all_nodes():
        if not context.standard(node) or _same(node.op_type, context.opset):
            continue
        if node.op_type not in _ADAPTED:
            return Refusal(f"{node.op_type} changed its meaning between opset {context.opset} and {RAISED}")
        if node.graph is not context.graph:
            return Refusal(f"{node.op_type} inside a subgraph would have to change")
    return None


def _same(op_type: str, old: int) -> bool:
    """A node of opset `old` means the same in the raised one."""
    try:
        if op_type in _EXTENDED or old >= _EXTENDED_FROM.get(op_type, RAISED):
            return True
        before, after = (onnx.defs.get_schema(op_type, version, "") for version in (old, RAISED))
    except onnx.defs.SchemaError:
        return False
    return bool(before.since_version == after.since_version)


class RaiseOpset(Rewrite):
    """Writes one node of an older opset in the form of opset 13; the driver raises the opset afterwards."""

    name = "raise-opset"
    safety = Safety.EXACT
    op_types = tuple(sorted(_ADAPTED))

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        if _same(node.op_type, context.opset):
            return None
        if context.shape(node.inputs[0]) is None or context.shape(node.outputs[0]) is None:
            return Refusal(f"the shape at {node.op_type} is not known")
        if node.op_type == "Dropout" and len(node.outputs) > 1:
            mask = node.outputs[1]
            if mask.uses() or context.is_output(mask):
                return Refusal("the mask of Dropout is used")
        outputs = tuple(node.outputs) if node.op_type == "Split" else (node.outputs[0],)
        return Match((node,), outputs)

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        node = match.nodes[0]
        context = builder.context
        value = node.inputs[0]
        assert value is not None
        if node.op_type == "Clip":
            bounds = [context.attribute(node, name) for name in ("min", "max")]
            return (
                builder.op("Clip", value, *(None if bound is None else builder.like(value, bound) for bound in bounds)),
            )
        if node.op_type == "Dropout":
            return (value,)
        if node.op_type in ("Softmax", "LogSoftmax"):
            return (_softmax(node, value, builder),)
        axes = context.attribute(node, "axes")
        given = [] if axes is None else [builder.ints(axes, "axes")]
        if node.op_type == "Split":
            sizes = context.attribute(node, "split")
            split = [] if sizes is None else [builder.ints(sizes, "split")]
            axis = context.attribute(node, "axis", 0)
            made = builder.op("Split", value, *split, outputs=len(node.outputs), axis=axis).producer()
            assert made is not None
            return made.outputs
        if node.op_type == "ReduceSum":
            return (builder.op("ReduceSum", value, *given, keepdims=context.attribute(node, "keepdims", 1)),)
        return (builder.op(node.op_type, value, *given),)


def _softmax(node: ir.Node, value: ir.Value, builder: Builder) -> ir.Value:
    """Softmax over everything from `axis` on: one dimension if the others there are 1, else flattened and back."""
    shape = builder.shape(value)
    axis = int(builder.context.attribute(node, "axis", 1)) % max(1, len(shape))
    wide = [index for index in range(axis, len(shape)) if shape[index] != 1]
    if len(wide) <= 1:
        return builder.op(node.op_type, value, axis=wide[0] if wide else axis)
    flat = builder.reshape(value, (prod(shape[:axis]), prod(shape[axis:])))
    return builder.reshape(builder.op(node.op_type, flat, axis=1), shape)
