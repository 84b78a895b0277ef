"""Lowering a graph: node by node, values of ONNX to tensors and weights of the network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orinport.model.layer import DType, LayerKind
from orinport.model.lower.network import Network, Ref, Refused, Weights
from orinport.model.lower.table import TABLE
from orinport.model.lower.types import trt_type

if TYPE_CHECKING:
    from collections.abc import Callable

    import onnx_ir as ir

    from orinport.model.lower.network import Inputs, Outputs
    from orinport.model.model import Model

__all__ = ["Lowerer"]

_DEFAULT_DOMAINS = frozenset({"", "ai.onnx"})


class Lowerer:
    """Lowers one model into one network."""

    def __init__(self, model: Model, net: Network) -> None:
        self.model = model
        self.net = net
        self.named: dict[str, Ref] = {}
        """Tensors that carry the name of an ONNX value."""
        self._values: dict[ir.Value, Ref | Weights] = {}

    def run(self, graph: ir.Graph) -> None:
        """Lower the main graph."""
        for value in graph.inputs:
            if value.const_value is not None:
                continue
            self._values[value] = self._name(value, Ref(value.name or "", None, DType.UNKNOWN))
        for node in graph:
            self._lower(node)

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
        dims = tuple(int(d) for d in tensor.shape.numpy())
        return Weights(value.name or "", dims, trt_type(tensor.dtype, self.net.parser), self._reader(value))

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
            return Weights(node.outputs[0].name or "", array.shape, dtype, lambda: array)
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
            if all(type(d) is int for d in dims):
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
        if outputs and all(value.const_value is not None for value in outputs):
            # Known at build time: as good as an initializer. Layers for it would only be folded again.
            return
        if op_type == "Constant" and node.domain in _DEFAULT_DOMAINS and (weights := self._constant(node)):
            self._values[outputs[0]] = weights
            return
        inputs = [self.operand(value) for value in node.inputs]
        mark = net.mark()
        try:
            made = self._made(node, inputs)
            wanted = len(outputs)
            if len(made) < wanted:
                raise Refused(f"{wanted} outputs are asked for, {len(made)} are made.")
        except Refused as refusal:
            net.rewind(mark)
            made = self._unsupported(node, inputs, str(refusal))
        for value, operand in zip(outputs, made, strict=False):
            if isinstance(operand, Ref) and value.name:
                self._name(value, operand)
            self._values[value] = operand

    def _made(self, node: ir.Node, inputs: Inputs) -> Outputs:
        if node.domain in _DEFAULT_DOMAINS and node.op_type in self.net.parser.operators:
            function = TABLE.get(node.op_type)
            if function is None:
                raise Refused("The parser takes it, but its lowering is not known.")
            return function(self.net, node, inputs)
        return self._plugin(node, inputs)

    def _plugin(self, node: ir.Node, inputs: Inputs) -> Outputs:
        """An operator that the parser does not know: a plugin where one can be, else nothing."""
        if node.domain in _DEFAULT_DOMAINS and node.op_type not in self.net.parser.plugins:
            raise Refused(f"The parser of TensorRT {self.net.parser.version} has no importer and no plugin for it.")
        refs = [self.net.tensor(operand) for operand in inputs if operand is not None]
        specs = [(None, DType.UNKNOWN) for _ in node.outputs]
        attributes = {"op_type": node.op_type, "domain": node.domain}
        return list(self.net.add_layer(LayerKind.PLUGIN, refs, specs, attributes, constant=False))

    def _unsupported(self, node: ir.Node, inputs: Inputs, reason: str) -> Outputs:
        refs = [operand for operand in inputs if isinstance(operand, Ref)]
        specs = [(None, DType.UNKNOWN) for _ in node.outputs]
        attributes = {"op_type": node.op_type, "domain": node.domain, "reason": reason}
        return list(self.net.add_layer(LayerKind.UNSUPPORTED, refs, specs, attributes, constant=False))
