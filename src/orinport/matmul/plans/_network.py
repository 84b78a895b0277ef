"""Building the networks of plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["Net"]

OPSET = 17
IR_VERSION = 8


class Net:
    """A small ONNX graph of 4-D tensors in FP32."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, shape: Sequence[int]) -> str:
        """Declare an input."""
        self._inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)))
        return name

    def output(self, name: str, shape: Sequence[int]) -> None:
        """Declare an output."""
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)))

    def node(self, op: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        """Add a node that gives `output`."""
        self._nodes.append(helper.make_node(op, list(inputs), [output], name=output, **attributes))
        return output

    def constant(self, name: str, values: NDArray[Any]) -> str:
        """Add an initializer."""
        self._weights.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def conv(self, x: str, weights: NDArray[Any], output: str, **attributes: Any) -> str:
        """A convolution without bias, weights (kernels, channels / group, height, width)."""
        name = self.constant(f"{output}_weights", weights.astype(np.float32))
        return self.node("Conv", [x, name], output, kernel_shape=list(weights.shape[2:]), **attributes)

    def model(self) -> onnx.ModelProto:
        """The finished network."""
        graph = helper.make_graph(self._nodes, self._name, self._inputs, self._outputs, self._weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
