"""If, Loop and Scan: their subgraphs are lowered in place, between the layers that TensorRT has for them.

Source: onnx-tensorrt 10.10, onnxOpImporters.cpp and ConditionalHelpers.cpp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.model.layer import DType, LayerKind
from orinport.model.lower.arguments import axis_of, integer, integers, need, whole_numbers
from orinport.model.lower.network import Network, Ref, Refused, Unclear, Weights
from orinport.model.lower.recurrent import loop_counter, loop_output
from orinport.model.lower.reduction import axis_length, to_scalar

if TYPE_CHECKING:
    import onnx_ir as ir

    from orinport.model.lower.network import Inputs, Outputs

__all__ = ["if_op", "loop", "scan"]

_ENDLESS = 2**31 - 1
_MOST_TURNS = 1024


def _graph(node: ir.Node, name: str) -> ir.Graph:
    attribute = node.attributes.get(name)
    if attribute is None:
        raise Refused(f"The attribute {name} is missing.")
    return attribute.as_graph()


def if_op(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """If to its branch where the condition is known, else to CONDITION, both branches and CONDITIONAL_OUTPUT."""
    condition = need(inputs, 0)
    branches = [_graph(node, name) for name in ("then_branch", "else_branch")]
    if isinstance(condition, Weights) and condition.size == 1:
        values = condition.small()
        taken = branches[0] if values is not None and bool(values.reshape(-1)[0]) else branches[1]
        net.scope.run_body(taken)
        return [net.scope.given(value) for value in taken.outputs]
    net.add_layer(LayerKind.CONDITION, (to_scalar(net, condition),), (), base=None)
    results, spans = [], []
    for branch in branches:
        start = net.mark()
        net.scope.run_body(branch)
        results.append([net.scope.given(value) for value in branch.outputs])
        spans.append((start, net.mark()))
    made: dict[str, Ref] = {}
    for start, end in spans:
        net.conditional_inputs(start, end, made)
    outputs: Outputs = []
    for yes, no in zip(*results, strict=True):
        refs = net.tensor(yes), net.tensor(no)
        shape = refs[0].shape if refs[0].shape == refs[1].shape else None
        base = f"{net.node_name}_OutputLayer"
        out = net.add(LayerKind.CONDITIONAL_OUTPUT, refs, shape, refs[0].dtype, base=base, constant=False)
        outputs.append(out)
    return outputs


def loop(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """Loop to TRIP_LIMIT, RECURRENCE, the body, and LOOP_OUTPUT."""
    body = _graph(node, "body")
    limit = _trip_limit(net, inputs, body)
    condition = inputs[1] if len(inputs) > 1 else None
    going = None
    if condition is not None:
        going = to_scalar(net, condition)
        net.scope.bind(body.inputs[1], going)
    states = []
    for value, operand in zip(body.inputs[2:], inputs[2:], strict=True):
        states.append(_state(net, need((operand,), 0)))
        net.scope.bind(value, states[-1], named=True)
    net.scope.run_body(body)
    results = body.outputs
    if going is not None:
        after = to_scalar(net, net.scope.given(results[0]))
        again = net.add(LayerKind.RECURRENCE, (going, after), (), DType.BOOL, base=None, constant=False)
        net.add_layer(LayerKind.TRIP_LIMIT, (again,), (), {"limit": "WHILE"}, base=None)
    outputs: Outputs = []
    for state, value in zip(states, results[1:], strict=False):
        net.append_input(state, net.tensor(net.scope.given(value)))
        outputs.append(loop_output(net, state, "LAST_VALUE"))
    for value in results[1 + len(states) :]:
        ref = net.tensor(net.scope.given(value))
        out = loop_output(net, ref, "CONCATENATE")
        net.append_input(out, limit or net.constant(_MOST_TURNS, DType.INT32, ()))
        outputs.append(out)
    return outputs


def _trip_limit(net: Network, inputs: Inputs, body: ir.Graph) -> Ref | None:
    """The number of turns as a tensor, with a counter for the body; None if it is not limited."""
    operand = inputs[0]
    if operand is None:
        return None
    numbers = whole_numbers(operand) if operand.is_weights else None
    if numbers and numbers[0] >= _ENDLESS:
        return None
    limit = to_scalar(net, operand)
    modern = net.parser.has("int64")
    if modern:
        limit = net.cast(limit, DType.INT32)
    net.add_layer(LayerKind.TRIP_LIMIT, (limit,), (), {"limit": "COUNT"}, base=None)
    counter = loop_counter(net)
    net.scope.bind(body.inputs[0], to_scalar(net, counter) if modern else counter, named=True)
    return limit


def _state(net: Network, operand: Ref | Weights) -> Ref:
    initial = net.tensor(operand)
    return net.add(LayerKind.RECURRENCE, (initial,), initial.shape, initial.dtype, base=None, constant=False)


def scan(net: Network, node: ir.Node, inputs: Inputs) -> Outputs:
    """Scan to TRIP_LIMIT, RECURRENCE, ITERATOR, the body, and LOOP_OUTPUT."""
    body = _graph(node, "body")
    old = net.opset == 8
    if old and inputs[0] is not None:
        raise Refused("Scan with the lengths of sequences.")
    operands = inputs[1:] if old else inputs
    scanned = integer(node, "num_scan_inputs", 0)
    kept = len(operands) - scanned
    if scanned < 1 or kept < 1:
        raise Refused("Scan without a state or without anything to scan.")
    axes = integers(node, "scan_input_axes") or (int(old),) * scanned
    reverse = integers(node, "scan_input_directions") or (0,) * scanned
    last = net.tensor(need(operands, len(operands) - 1))
    length = axis_length(net, last, axis_of(axes[-1], _rank(last)))
    net.add_layer(LayerKind.TRIP_LIMIT, (length,), (), {"limit": "COUNT"}, base=None)
    states = []
    for index in range(kept):
        states.append(_state(net, need(operands, index)))
        net.scope.bind(body.inputs[index], states[-1], named=True)
    for index in range(scanned):
        ref = net.tensor(need(operands, kept + index))
        axis = axis_of(axes[index], _rank(ref))
        assert ref.shape is not None
        shape = (*ref.shape[:axis], *ref.shape[axis + 1 :])
        attributes = {"axis": axis, "reverse": reverse[index] == 1}
        item = net.add(LayerKind.ITERATOR, (ref,), shape, ref.dtype, attributes, base=None, constant=ref.constant)
        net.scope.bind(body.inputs[kept + index], item, named=True)
    net.scope.run_body(body)
    outputs: Outputs = []
    for state, value in zip(states, body.outputs, strict=False):
        net.append_input(state, net.tensor(net.scope.given(value)))
        outputs.append(loop_output(net, state, "LAST_VALUE"))
    rest = body.outputs[kept:]
    out_axes = integers(node, "scan_output_axes") or (int(old),) * len(rest)
    prepended = integers(node, "scan_output_directions") or (0,) * len(rest)
    for index, value in enumerate(rest):
        ref = net.tensor(net.scope.given(value))
        axis = axis_of(out_axes[index], None if ref.shape is None else len(ref.shape) + 1)
        outputs.append(loop_output(net, ref, "REVERSE" if prepended[index] else "CONCATENATE", length, axis))
    return outputs


def _rank(ref: Ref) -> int:
    if ref.shape is None:
        raise Unclear("The shape of an input is unknown.")
    return len(ref.shape)
