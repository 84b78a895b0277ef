"""What the ONNX checker says of a network that was rewritten."""

from __future__ import annotations

import onnx_ir as ir

from orinport.errors import first_line

__all__ = ["require_valid", "type_problem"]

_CHECKED_BYTES = 1 << 16


def require_valid(model: ir.Model, original: ir.Model) -> None:
    """Hold a rewritten network against the ONNX checker; RuntimeError if it fails where the original passes.

    Weights take no part: large constants are shown to the checker as inputs.
    """
    problem = _checker_says(model)
    if problem and not _checker_says(original):
        raise RuntimeError(f"the rewritten network is not valid ONNX: {problem}")


def type_problem(model: ir.Model) -> str:
    """What ONNX's checker and type inference have against a network, in one line; empty if nothing."""
    return _checker_says(model, types=True)


def _checker_says(model: ir.Model, *, types: bool = False) -> str:
    import onnx

    graph = model.graph.clone()
    for name, value in list(graph.initializers.items()):
        tensor = value.const_value
        if tensor is None or value.is_graph_output():
            continue
        if tensor.nbytes > _CHECKED_BYTES or isinstance(tensor, ir.ExternalTensor):
            graph.initializers.pop(name)
            if not value.is_graph_input():
                graph.inputs.append(value)
    bare = ir.Model(graph, ir_version=max(model.ir_version, 4), functions=list(model.functions.values()))
    proto = ir.to_proto(bare)
    try:
        onnx.checker.check_model(proto)
        if types:
            onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        return first_line(error)
    return ""
