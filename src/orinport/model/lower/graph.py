"""Lowering a graph: node by node, values of ONNX to tensors and weights of the network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orinport.model.layer import DType, LayerKind
from orinport.model.lower.form import Forms, form_of
from orinport.model.lower.network import Network, Ref, Refused, Unclear, Weights
from orinport.model.lower.table import TABLE
from orinport.model.lower.types import known_type, trt_type
from orinport.model.model import shape_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import onnx_ir as ir

    from orinport.model.lower.network import Inputs, Outputs
    from orinport.model.model import Model

__all__ = ["Lowerer"]

_TAKEN_ALL_THE_SAME = ("has been deprecated", "should be scalars")
"""What ONNX holds against a node and the parser does not: GroupNormalization of opset 18, a Range of vectors."""
_RAW_UINT8 = frozenset({"QuantizeLinear", "DequantizeLinear"})
_DEFAULT_DOMAINS = frozenset({"", "ai.onnx"})


class Lowerer:
    """Lowers one model into one network."""

    def __init__(self, model: Model, net: Network) -> None:
        self.model = model
        self.net = net
        self.named: dict[str, Ref] = {}
        """Tensors that carry the name of an ONNX value."""
        self._values: dict[ir.Value, Ref | Weights] = {}
        self._types: dict[ir.DataType, bool] = {}
        self._forms = Forms(net)
        net.scope = self

    def run(self, graph: ir.Graph) -> None:
        """Lower the main graph."""
        for value in graph.inputs:
            if value.const_value is not None:
                continue
            self._values[value] = self._name(value, Ref(value.name or "", None, DType.UNKNOWN))
            self._check_type(value, "Input")
        for node in graph:
            self._lower(node)
        for value in graph.outputs:
            self._output(value)

    def _known_type(self, dtype: ir.DataType) -> bool:
        known = self._types.get(dtype)
        if known is None:
            known = self._types[dtype] = known_type(dtype, self.net.parser)
        return known

    def _check_type(self, value: ir.Value, role: str) -> None:
        """A network input or output of a type that TensorRT lacks stops the whole import."""
        if known_type(value.dtype, self.net.parser):
            return
        self.net.node_name = value.name or ""
        self.net.node_display = f"{role}:{value.name}"
        reason = f"TensorRT {self.net.parser.version} has no element type {value.dtype}."
        known = self._values.get(value)
        outputs = [] if role == "Output" else [(None, DType.UNKNOWN)]
        attributes = {"op_type": role, "domain": "", "reason": reason, "certain": True}
        refs = [known] if role == "Output" and isinstance(known, Ref) else []
        made = self.net.add_layer(LayerKind.UNSUPPORTED, refs, outputs, attributes, constant=False)
        if made:
            self._values[value] = self._name(value, made[0])

    def _output(self, value: ir.Value) -> None:
        """Mark an output: weights become a CONSTANT, an input of the network is copied first."""
        self._check_type(value, "Output")
        operand = self.operand(value)
        if isinstance(operand, Weights):
            self.net.node_display = ""
            self._name(value, self.net.tensor(operand))
        elif isinstance(operand, Ref) and value.is_graph_input():
            self.net.node_display = ""
            self.net.identity(operand)

    # --- subgraphs -------------------------------------------------------------------------------------------

    def bind(self, value: ir.Value, operand: Ref | Weights, *, named: bool = False) -> None:
        """Make `operand` the value of an input of a subgraph; with `named`, give it its name."""
        self._values[value] = self._name(value, operand) if named and isinstance(operand, Ref) else operand

    def run_body(self, graph: ir.Graph) -> None:
        """Lower the nodes of a subgraph."""
        name, display = self.net.node_name, self.net.node_display
        for node in graph:
            self._lower(node)
        self.net.node_name, self.net.node_display = name, display

    def given(self, value: ir.Value) -> Ref | Weights:
        """What stands for a value, which must be known."""
        operand = self.operand(value)
        if operand is None:
            raise Refused("A subgraph has an output without a name.")
        return operand

    # --- values ----------------------------------------------------------------------------------------------

    def operand(self, value: ir.Value | None) -> Ref | Weights | None:
        """What the parser holds for `value`; None for an input that is not given."""
        if value is None:
            return None
        known = self._values.get(value)
        if known is not None:
            return known
        if not value.name:
            return None
        made = self._values[value] = self._initializer(value)
        return made

    def _initializer(self, value: ir.Value) -> Ref | Weights:
        tensor = value.const_value
        if tensor is None:
            return self._name(value, Ref(value.name or "", None, DType.UNKNOWN))
        dtype = tensor.dtype
        if not self._known_type(dtype):
            raise Refused(f"TensorRT {self.net.parser.version} has no element type {dtype} for constants.")
        shape = shape_of(value) or tuple(tensor.shape.numpy())
        return Weights(value.name or "", shape, trt_type(dtype, self.net.parser), self._reader(value))

    def _constant(self, node: ir.Node) -> Weights | None:
        """The output of a Constant node; None if it holds nothing that TensorRT takes."""
        for name, attribute in node.attributes.items():
            if name == "value":
                tensor = attribute.value
                array, dtype = tensor.numpy(), trt_type(tensor.dtype, self.net.parser)
            elif name in {"value_float", "value_floats"}:
                array, dtype = np.asarray(attribute.value, dtype=np.float32), DType.FP32
            elif name in {"value_int", "value_ints"}:
                array, dtype = np.asarray(attribute.value, dtype=np.int64), self.net.int64
            else:
                continue
            return _held(node.outputs[0].name or "", array, dtype)
        return None

    def _reader(self, value: ir.Value) -> Callable[[], np.ndarray | None]:
        return lambda: self.model.constant(value)

    def _name(self, value: ir.Value, ref: Ref) -> Ref:
        """Give `ref` the name, and what it lacks of shape and type, of the ONNX value."""
        name = value.name or ""
        if name:
            ref.name = name
            self.named[name] = ref
        shape = value.shape
        if shape is not None:
            dims = shape.dims
            for dim in dims:
                if type(dim) is not int:
                    break
            else:
                ref.shape = dims  # type: ignore[assignment]
        if ref.dtype is DType.UNKNOWN:
            ref.dtype = trt_type(value.dtype, self.net.parser)
        return ref

    # --- nodes -----------------------------------------------------------------------------------------------

    def _lower(self, node: ir.Node) -> None:
        net = self.net
        op_type = node.op_type
        outputs = node.outputs
        name = node.name
        if name:
            net.node_name = net.node_display = name
        else:
            first = outputs[0].name if outputs else ""
            net.node_name = f"node_of_{first}"
            net.node_display = f"{op_type}:{first}"
        if outputs and None not in [value.const_value for value in outputs]:
            # Known at build time: as good as an initializer. Layers for it would only be folded again.
            return
        if op_type == "Constant" and node.domain in _DEFAULT_DOMAINS and (weights := self._constant(node)):
            self._values[outputs[0]] = weights
            return
        mark = net.mark()
        inputs: list[Ref | Weights | None] = []
        try:
            inputs = [self.operand(value) for value in node.inputs]
            made = self._made(node, inputs)
            self._check(node, made)
        except Refused as refusal:
            net.rewind(mark)
            made = self._unsupported(node, inputs, refusal)
        for value, operand in zip(outputs, made, strict=False):
            if isinstance(operand, Ref) and value.name:
                self._name(value, operand)
            self._values[value] = operand

    def _check(self, node: ir.Node, made: Outputs) -> None:
        outputs = node.outputs
        if len(made) < len(outputs):
            raise Refused(f"{len(outputs)} outputs are asked for, {len(made)} are made.")
        for value, operand in zip(outputs, made, strict=False):
            if operand.shape and min(operand.shape) < 0:
                raise Refused(f"A dimension of the result would be negative: {operand.shape}.")
            if operand.dtype is DType.UINT8 and not operand.is_weights and not value.is_graph_output():
                raise Refused("UINT8 is a type for inputs and outputs of the network, not in between.")

    def _made(self, node: ir.Node, inputs: Inputs) -> Outputs:
        defect = self.model.defect(node) if node.meta.data else None
        if defect is not None and not any(words in defect for words in _TAKEN_ALL_THE_SAME):
            raise Refused(f"The node is not valid: {defect}.")
        if node.op_type in self.net.parser.operators:
            # The parser goes by the operator's name; it does not look at the domain.
            form = form_of(node, inputs)
            if form is None:
                return self._function(node, inputs)
            made = self._forms.again(form, inputs)
            if made is None:
                mark = self.net.mark()
                made = self._function(node, inputs)
                self._forms.learn(form, mark, inputs, made)
            return made
        return self._plugin(node, inputs)

    def _function(self, node: ir.Node, inputs: Inputs) -> Outputs:
        function = TABLE.get(node.op_type)
        if function is None:
            raise Refused("The parser takes it, but its lowering is not known.")
        if node.op_type not in _RAW_UINT8:
            inputs = _widened(inputs)
        return function(self.net, node, inputs)

    def _plugin(self, node: ir.Node, inputs: Inputs) -> Outputs:
        """An operator that the parser does not know: a plugin where one can be, else nothing."""
        if node.domain in _DEFAULT_DOMAINS and node.op_type not in self.net.parser.plugins:
            raise Refused(f"The parser of TensorRT {self.net.parser.version} has no importer and no plugin for it.")
        refs = [self.net.tensor(operand) for operand in inputs if operand is not None]
        specs = [(None, DType.UNKNOWN) for _ in node.outputs]
        attributes = {"op_type": node.op_type, "domain": node.domain}
        return list(self.net.add_layer(LayerKind.PLUGIN, refs, specs, attributes, constant=False))

    def _unsupported(self, node: ir.Node, inputs: Inputs, refusal: Refused) -> Outputs:
        refs = [operand for operand in inputs if isinstance(operand, Ref)]
        specs = [(None, DType.UNKNOWN) for _ in node.outputs]
        attributes = {
            "op_type": node.op_type,
            "domain": node.domain,
            "reason": str(refusal),
            "certain": not isinstance(refusal, Unclear),
        }
        return list(self.net.add_layer(LayerKind.UNSUPPORTED, refs, specs, attributes, constant=False))


def _held(name: str, array: np.ndarray, dtype: DType) -> Weights:
    return Weights(name, array.shape, dtype, lambda: array)


def _widened(inputs: Inputs) -> Inputs:
    """UINT8 constants are INT32 to the parser, save for those of quantization."""
    for operand in inputs:
        if isinstance(operand, Weights) and operand.dtype is DType.UINT8:
            break
    else:
        return inputs
    return [
        Weights(o.name, o.shape, DType.INT32, o.read) if isinstance(o, Weights) and o.dtype is DType.UINT8 else o
        for o in inputs
    ]
