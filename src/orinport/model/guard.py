"""Keep onnx's shape inference from ending the process: what some of its functions do with a negative dimension.

A convolution whose kernel is larger than its padded input has an output of negative size for onnx, and onnx's
functions for Slice and GatherND, given one, read outside their arrays or fail an assertion, which no `except`
catches (defs/tensor/defs.cc of onnx 1.23.2). For the time of the inference such nodes belong to a domain of ours,
whose schemas look at the dimensions first and then call onnx's own function.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import onnx
import onnx.defs
import onnx.numpy_helper

from orinport.errors import OrinportError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["GUARD_DOMAIN", "guard", "unguard"]

GUARD_DOMAIN = "orinport.guard"
_PREFIX = "Guarded"
"""onnx.reference wants a name to stand for one operator in all domains."""
_GUARDED = frozenset({"Slice", "GatherND"})
_WITH_SUBGRAPHS = frozenset({"If", "Loop", "Scan", "SequenceMap"})
_NEEDS_LOOK = _GUARDED | _WITH_SUBGRAPHS
_SHAPE_ARITHMETIC = frozenset(
    {"Add", "Cast", "Concat", "Div", "Gather", "Identity", "Mul", "Slice", "Squeeze", "Sub", "Unsqueeze"}
)
"""Operators that make no negative dimension of tensors that have none."""
_MAX_STEP = 1 << 30
"""Beyond it, onnx's `int` for the index into a shape overflows."""


def guard(proto: onnx.ModelProto) -> bool:
    """Move the nodes of `proto` that could end the process to the domain `GUARD_DOMAIN`, in place; False if none is.

    The nodes of the main graph are in topological order. A Slice of shapes stays: onnx follows its values, which it
    does not for operators of other domains. Raises OrinportError if the network uses that domain itself.
    """
    if any(entry.domain == GUARD_DOMAIN for entry in proto.opset_import):
        raise OrinportError(f"The network uses the operator set '{GUARD_DOMAIN}', which is orinport's own.")
    version = next((entry.version for entry in proto.opset_import if not entry.domain), 0)
    unsafe = [node for node in _unsafe(proto.graph, {}) if _register(node.op_type, version)]
    for node in unsafe:
        node.domain, node.op_type = GUARD_DOMAIN, _PREFIX + node.op_type
    if unsafe:
        proto.opset_import.add(domain=GUARD_DOMAIN, version=version)
    return bool(unsafe)


def unguard(proto: onnx.ModelProto) -> None:
    """Undo `guard`, in place."""
    for node in _all_nodes(proto.graph):
        if node.domain == GUARD_DOMAIN:
            node.domain, node.op_type = "", node.op_type.removeprefix(_PREFIX)
    kept = [entry for entry in proto.opset_import if entry.domain != GUARD_DOMAIN]
    del proto.opset_import[:]
    proto.opset_import.extend(kept)


def _all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        if node.op_type in _WITH_SUBGRAPHS:
            for inner in _subgraphs(node):
                yield from _all_nodes(inner)


def _subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs into which onnx's inference goes."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            yield from attribute.graphs


def _unsafe(graph: onnx.GraphProto, outer: dict[str, onnx.TensorProto]) -> Iterator[onnx.NodeProto]:
    """Nodes of `graph` and its subgraphs whose inputs may have a negative dimension, as far as operators tell."""
    if _NEEDS_LOOK.isdisjoint(node.op_type for node in graph.node):
        return
    constants = {**outer, **{tensor.name: tensor for tensor in graph.initializer}}
    shapes: set[str] = {""}
    for node in graph.node:
        op_type = node.op_type
        if op_type in _GUARDED and not node.domain and not _is_shape_slice(node, shapes, constants):
            yield node
        if op_type in ("Shape", "Size") or (
            op_type in _SHAPE_ARITHMETIC and all(name in shapes or name in constants for name in node.input)
        ):
            shapes.update(node.output)
        if op_type in _WITH_SUBGRAPHS:
            for inner in _subgraphs(node):
                yield from _unsafe(inner, constants)


def _is_shape_slice(node: onnx.NodeProto, shapes: set[str], constants: dict[str, onnx.TensorProto]) -> bool:
    if node.op_type != "Slice" or not (node.input[0] in shapes or node.input[0] in constants):
        return False
    name = node.input[4] if len(node.input) > 4 else ""
    if not name:
        return True
    steps = constants.get(name)
    if steps is None or steps.data_location == onnx.TensorProto.EXTERNAL:
        return False
    return all(abs(int(step)) <= _MAX_STEP for step in onnx.numpy_helper.to_array(steps).ravel())


@lru_cache(maxsize=64)
def _register(op_type: str, version: int) -> bool:
    """Make the guarded form of an operator known to onnx; False if this onnx takes no such functions."""
    try:
        schema = onnx.defs.get_schema(op_type, version, "")
        infer = schema.get_type_and_shape_inference_function()
    except (onnx.defs.SchemaError, AttributeError):
        return False
    _register_once(op_type, schema.since_version, schema, infer)
    return True


_registered: set[tuple[str, int]] = set()


def _register_once(op_type: str, since: int, schema: onnx.defs.OpSchema, infer: Any) -> None:
    if (op_type, since) in _registered:
        return
    parameter = onnx.defs.OpSchema.FormalParameter
    guarded = onnx.defs.OpSchema(
        _PREFIX + op_type,
        GUARD_DOMAIN,
        since,
        inputs=[parameter(f.name, f.type_str, param_option=f.option) for f in schema.inputs],
        outputs=[parameter(f.name, f.type_str, param_option=f.option) for f in schema.outputs],
        type_constraints=[(c.type_param_str, list(c.allowed_type_strs), "") for c in schema.type_constraints],
        attributes=list(schema.attributes.values()),
    )

    def look_first(context: Any) -> None:
        for index in range(context.get_num_inputs()):
            type_ = context.get_input_type(index) if context.has_input(index) else None
            if type_ is not None and any(dim.dim_value < 0 for dim in type_.tensor_type.shape.dim):
                return
        infer(context)

    guarded.set_type_and_shape_inference_function(look_first)
    onnx.defs.register_schema(guarded)
    _registered.add((op_type, since))
