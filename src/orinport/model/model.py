"""The value that all rooms read: a network whose shapes and types are concrete wherever they can be known."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir

from orinport.errors import OrinportError
from orinport.model.layer import DType, Tensor

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["SMALL", "Model", "display_name", "dtype_of", "is_constant", "numpy_of", "shape_of", "tensor_of"]

DEFECT = "orinport.defect"
"""Key of `onnx_ir.Node.meta`: why the node cannot be valid, in onnx's words."""
SMALL = 1 << 16
"""Elements up to which a constant counts as small: its value is at hand at no cost that matters."""

_DTYPES = {
    onnx_ir.DataType.FLOAT: DType.FP32,
    onnx_ir.DataType.DOUBLE: DType.FP64,
    onnx_ir.DataType.FLOAT16: DType.FP16,
    onnx_ir.DataType.BFLOAT16: DType.BF16,
    onnx_ir.DataType.FLOAT8E4M3FN: DType.FP8,
    onnx_ir.DataType.INT8: DType.INT8,
    onnx_ir.DataType.UINT8: DType.UINT8,
    onnx_ir.DataType.INT4: DType.INT4,
    onnx_ir.DataType.INT16: DType.INT16,
    onnx_ir.DataType.INT32: DType.INT32,
    onnx_ir.DataType.INT64: DType.INT64,
    onnx_ir.DataType.BOOL: DType.BOOL,
    onnx_ir.DataType.STRING: DType.STRING,
}


def dtype_of(value: onnx_ir.Value) -> DType:
    """Element type of `value`; UNKNOWN if it has none, or one that TensorRT has no name for."""
    dtype = value.dtype if value.type is None or isinstance(value.type, onnx_ir.TensorType) else None
    return DType.UNKNOWN if dtype is None else _DTYPES.get(dtype, DType.UNKNOWN)


def shape_of(value: onnx_ir.Value) -> tuple[int, ...] | None:
    """Concrete shape of `value`, or None if any part of it is unknown or it is no tensor."""
    shape = value.shape
    if shape is None or (value.type is not None and not isinstance(value.type, onnx_ir.TensorType)):
        return None
    dims = shape.dims
    return dims if all(type(d) is int and d >= 0 for d in dims) else None  # type: ignore[return-value]


def is_constant(value: onnx_ir.Value) -> bool:
    """True if the value is known at build time: an initializer, or computed from initializers alone."""
    return value.const_value is not None


def tensor_of(value: onnx_ir.Value) -> Tensor:
    """`value` as rules see it."""
    return Tensor(value.name or "", shape_of(value), dtype_of(value), value.const_value is not None)


def display_name(node: onnx_ir.Node) -> str:
    """The node's name, or `OpType:output` for an unnamed node."""
    if node.name:
        return node.name
    return f"{node.op_type}:{next((v.name for v in node.outputs if v.name), '')}"


@dataclass(frozen=True, slots=True)
class Model:
    """A network, checked and with concrete shapes.

    `ir` is the graph: nodes in topological order, model-local functions inlined, constants as initializers,
    and a shape and a type on every value for which they can be inferred. What is constant but too large to
    store again has `const_value` set on the output of the node that makes it; the node stays.

    The value is frozen, the graph inside is not: whoever edits it works on `copy_model(model)`.
    """

    ir: onnx_ir.Model
    name: str
    """What reports show: the file's name, or the graph's."""
    path: Path | None = None
    """The file that it came from, if it came from one."""
    _values: dict[int, tuple[onnx_ir.TensorProtocol, np.ndarray]] = field(
        default_factory=dict, repr=False, compare=False
    )
    """Arrays of small constants by the identity of their tensor, which is kept so that it stays unique."""

    @property
    def graph(self) -> onnx_ir.Graph:
        """The main graph."""
        return self.ir.graph

    @property
    def opset(self) -> int:
        """Version of the default operator set."""
        return self.ir.graph.opset_imports[""]

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """What is fed at run time; initializers are none of it."""
        return tuple(tensor_of(value) for value in self.ir.graph.inputs)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """What the network returns."""
        return tuple(tensor_of(value) for value in self.ir.graph.outputs)

    def is_constant(self, value: onnx_ir.Value | None) -> bool:
        """True if `value` is known at build time."""
        return value is not None and value.const_value is not None

    def constant(self, value: onnx_ir.Value | None, *, limit: int | None = SMALL) -> np.ndarray | None:
        """The elements of a constant, read-only; None if it is not constant or has more than `limit` elements.

        `limit=None` reads constants of any size: from disk, if they are external data. Raises
        OrinportError if the data cannot be read.
        """
        if value is None or (tensor := value.const_value) is None:
            return None
        if limit is not None and tensor.size > limit:
            return None
        if (known := self._values.get(id(tensor))) is not None:
            return known[1]
        array = numpy_of(tensor, value.name or "")
        if array.size <= SMALL:
            self._values[id(tensor)] = (tensor, array)
        return array

    def defect(self, node: onnx_ir.Node) -> str | None:
        """Why `node` cannot be valid as it stands, in onnx's words; None if nothing speaks against it."""
        found = node.meta.get(DEFECT)
        return None if found is None else str(found)

    def tensor(self, value: onnx_ir.Value) -> Tensor:
        """`value` as rules see it."""
        return tensor_of(value)


def numpy_of(tensor: onnx_ir.TensorProtocol, name: str) -> np.ndarray:
    """The elements of `tensor`, read-only. Raises OrinportError if they cannot be read."""
    try:
        array: np.ndarray = np.asarray(tensor.numpy()).view()
    except (OSError, ValueError, TypeError, MemoryError) as error:
        raise OrinportError(f"The data of the constant {name!r} cannot be read: {error}") from error
    array.flags.writeable = False
    return array
