"""The network under construction: tensors, constants, and the layers that the parser adds.

Operator functions call `Network` as NVIDIA's parser calls `INetworkDefinition`, so that kinds, order and
attributes come out alike. Nothing here is frozen; `finish()` gives the values that the other rooms read.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from orinport.model.layer import DType, Layer, LayerKind, Tensor
from orinport.model.model import SMALL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import onnx_ir as ir

    from orinport.model.lower.version import Parser

__all__ = [
    "FOLD_LIMIT",
    "Draft",
    "Inputs",
    "Network",
    "Operand",
    "Outputs",
    "Ref",
    "Refused",
    "Scope",
    "Unclear",
    "Weights",
    "broadcast_shape",
    "shaped",
    "slice_attributes",
]

Operand: TypeAlias = "Ref | Weights"
Inputs: TypeAlias = "Sequence[Ref | Weights | None]"
Outputs: TypeAlias = "list[Ref | Weights]"

_MOST_DIMENSIONS = 8
"""`Dims::MAX_DIMS`."""

FOLD_LIMIT = 64
"""Elements up to which values of shape arithmetic are followed: more than twice the dimensions of any tensor."""

_TYPE_NAMES = {
    LayerKind.CONVOLUTION: "Convolution",
    LayerKind.DECONVOLUTION: "Deconvolution",
    LayerKind.ELEMENTWISE: "ElementWise",
    LayerKind.MATRIX_MULTIPLY: "Matrix Multiply",
    LayerKind.SOFTMAX: "Softmax",
    LayerKind.TOPK: "TopK",
    LayerKind.LRN: "LRN",
    LayerKind.NON_ZERO: "NonZero",
    LayerKind.ONE_HOT: "OneHot",
    LayerKind.GRID_SAMPLE: "GridSample",
    LayerKind.PARAMETRIC_RELU: "Parametric ReLU",
}
"""How TensorRT spells the kind in `(Unnamed Layer* 3) [ElementWise]`, where it is not plain capitals."""


_NOT_OF_UINT8 = frozenset(
    {
        LayerKind.ACTIVATION,
        LayerKind.CONVOLUTION,
        LayerKind.ELEMENTWISE,
        LayerKind.MATRIX_MULTIPLY,
        LayerKind.POOLING,
        LayerKind.REDUCE,
        LayerKind.UNARY,
    }
)


class Refused(Exception):  # noqa: N818 - it is the parser's answer, not a defect
    """The parser of this version does not take the node, for the given reason."""


class Unclear(Refused):
    """Whether and how the node is taken depends on a shape that could not be found out."""


class Ref:
    """A tensor of the network. `values` are its elements where they are known at build time and few."""

    __slots__ = ("constant", "dtype", "name", "shape", "values")
    is_weights = False

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...] | None,
        dtype: DType,
        constant: bool = False,
        values: np.ndarray | None = None,
    ) -> None:
        self.name = name
        self.shape = shape
        self.dtype = dtype
        self.constant = constant
        self.values = values


class Weights:
    """Constant data that is no tensor of the network yet: an initializer, or the output of Constant."""

    __slots__ = ("dtype", "name", "read", "shape")
    is_weights = True

    def __init__(self, name: str, shape: tuple[int, ...], dtype: DType, read: Callable[[], np.ndarray | None]) -> None:
        self.name = name
        self.shape = shape
        self.dtype = dtype
        self.read = read
        """Gives the elements, or None if there are too many to look at."""

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    def small(self) -> np.ndarray | None:
        """The elements, if they are few enough to follow."""
        return self.read() if self.size <= FOLD_LIMIT else None


class Scope(Protocol):
    """What operators with subgraphs need of the graph that they are in."""

    def bind(self, value: ir.Value, operand: Ref | Weights, *, named: bool = False) -> None:
        """Make `operand` the value of an input of a subgraph; with `named`, give it its name."""

    def run_body(self, graph: ir.Graph) -> None:
        """Lower the nodes of a subgraph."""

    def given(self, value: ir.Value) -> Ref | Weights:
        """What stands for a value, which must be known."""


class Draft:
    """A layer that can still change: outputs get their ONNX names only when the node is done."""

    __slots__ = ("attributes", "base", "inputs", "kind", "name", "node", "outputs")

    def __init__(
        self,
        kind: LayerKind,
        name: str,
        inputs: list[Ref],
        outputs: list[Ref],
        node: str,
        attributes: Mapping[str, Any],
        base: str | None,
    ) -> None:
        self.base = base
        self.kind = kind
        self.name = name
        self.inputs = inputs
        self.outputs = outputs
        self.node = node
        self.attributes = attributes


class Network:
    """Layers in the order in which the parser adds them."""

    scope: Scope
    """Where operators with subgraphs find values and lower bodies; set by who lowers the graph."""

    def __init__(self, parser: Parser, opset: int) -> None:
        self.parser = parser
        self.opset = opset
        self.int64 = DType.INT64 if parser.has("int64") else DType.INT32
        """The type of shapes and indices."""
        self.node_name = ""
        """TensorRT's name of the node that is being lowered: a base for layer names."""
        self.node_display = ""
        self._drafts: list[Draft] = []
        self._names: dict[str, int] = {}
        self._constants: dict[str, Ref] = {}
        self._strict = parser.has("strongly_typed")
        self._modern_names = parser.has("int64")

    # --- layers ----------------------------------------------------------------------------------------------

    def mark(self) -> int:
        """A point to go back to with `rewind`."""
        return len(self._drafts)

    def only_since(self, mark: int) -> Draft | None:
        """The one layer with one output added since `mark`, named after its node; None if it is not like that."""
        if len(self._drafts) != mark + 1:
            return None
        draft = self._drafts[mark]
        return draft if len(draft.outputs) == 1 and draft.base == "" else None

    def rewind(self, mark: int) -> None:
        """Forget the layers added since `mark`."""
        for draft in self._drafts[mark:]:
            for ref in draft.outputs:
                if self._constants.get(draft.name) is ref:
                    del self._constants[draft.name]
        del self._drafts[mark:]

    def add_layer(
        self,
        kind: LayerKind,
        inputs: Sequence[Ref],
        outputs: Sequence[tuple[tuple[int, ...] | None, DType]],
        attributes: Mapping[str, Any] | None = None,
        *,
        base: str | None = "",
        constant: bool | None = None,
    ) -> list[Ref]:
        """Add a layer and return its outputs.

        `base` names it: "" after the node, None not at all (as for layers that the parser leaves unnamed).
        Outputs are constant if all inputs are, unless `constant` says otherwise.
        """
        index = len(self._drafts)
        if base is None:
            name = f"(Unnamed Layer* {index}) [{_TYPE_NAMES.get(kind) or kind.value.title()}]"
        else:
            name = self._unique(base or self.node_name)
        constants = 0
        for ref in inputs:
            constants += ref.constant
            if ref.dtype is DType.UINT8 and kind in _NOT_OF_UINT8 and (attributes or {}).get("op") != "EQUAL":
                raise Refused("UINT8 is a type for inputs and outputs of the network, not to compute with.")
        if constant is None:
            constant = 0 < constants == len(inputs)
        refs: list[Ref] = []
        for shape, dtype in outputs:
            if shape is not None and len(shape) > _MOST_DIMENSIONS:
                raise Refused(f"Rank {len(shape)}; TensorRT has at most {_MOST_DIMENSIONS} dimensions.")
            suffix = f"_output_{len(refs)}" if refs else "_output"
            refs.append(Ref(name + suffix, shape, dtype, constant))
        self._drafts.append(Draft(kind, name, list(inputs), refs, self.node_display, attributes or {}, base))
        return refs

    def add(
        self,
        kind: LayerKind,
        inputs: Sequence[Ref],
        shape: tuple[int, ...] | None,
        dtype: DType,
        attributes: Mapping[str, Any] | None = None,
        *,
        base: str | None = "",
        constant: bool | None = None,
        values: np.ndarray | None = None,
    ) -> Ref:
        """Add a layer with one output and return that."""
        (ref,) = self.add_layer(kind, inputs, ((shape, dtype),), attributes, base=base, constant=constant)
        if values is not None and values.size <= FOLD_LIMIT:
            ref.values = values
            if ref.shape is None:
                ref.shape = values.shape
        return ref

    def attributes_of(self, ref: Ref) -> dict[str, Any]:
        """The attributes, still open to change, of the newest layer that gives `ref`."""
        for draft in reversed(self._drafts):
            if ref in draft.outputs:
                draft.attributes = attributes = dict(draft.attributes)
                return attributes
        raise KeyError(ref.name)

    def append_input(self, ref: Ref, extra: Ref) -> None:
        """Give one more input to the newest layer that gives `ref`."""
        for draft in reversed(self._drafts):
            if ref in draft.outputs:
                draft.inputs.append(extra)
                return
        raise KeyError(ref.name)

    def _unique(self, base: str) -> str:
        count = self._names.get(base)
        if count is None:
            self._names[base] = 0
            return base
        name = f"{base}_{count}"
        while name in self._names:
            count += 1
            name = f"{base}_{count}"
        self._names[base] = count + 1
        self._names[name] = 0
        return name

    def conditional_inputs(self, start: int, end: int, made: dict[str, Ref]) -> None:
        """Put a CONDITIONAL_INPUT in front of what the layers from `start` to `end` take from outside.

        `made` holds those that there are, by the names of their tensors.
        """
        drafts = self._drafts[start:end]
        inside = {id(ref) for draft in drafts for ref in draft.outputs}
        for draft in drafts:
            for index, ref in enumerate(draft.inputs):
                if id(ref) in inside or draft.kind is LayerKind.CONDITIONAL_OUTPUT:
                    continue
                if ref.name not in made:
                    base = f"{ref.name}_InputLayer"
                    made[ref.name] = self.add(LayerKind.CONDITIONAL_INPUT, (ref,), ref.shape, ref.dtype, base=base)
                draft.inputs[index] = made[ref.name]

    # --- constants -------------------------------------------------------------------------------------------

    def tensor(self, operand: Ref | Weights) -> Ref:
        """`operand` as a tensor: weights become a CONSTANT layer, once per name."""
        if not operand.is_weights:
            return operand  # type: ignore[return-value]
        assert isinstance(operand, Weights)
        known = self._constants.get(operand.name)
        if known is not None:
            return known
        values = operand.small()
        ref = self.add(
            LayerKind.CONSTANT,
            (),
            operand.shape,
            operand.dtype,
            {"values": operand.size, "scalar": _uniform(values) if values is not None else _peek(operand)},
            base=operand.name,
            constant=True,
            values=values,
        )
        self._constants[operand.name] = ref
        return ref

    def constant(
        self, values: Any, dtype: DType, shape: tuple[int, ...] | None = None, *, base: str | None = None
    ) -> Ref:
        """Add a CONSTANT layer for data that the parser makes up."""
        array = np.asarray(values)
        if shape is not None:
            array = np.broadcast_to(array, shape) if array.ndim == 0 else array.reshape(shape)
        attributes = {"values": array.size, "scalar": _uniform(array)}
        return self.add(LayerKind.CONSTANT, (), array.shape, dtype, attributes, base=base, constant=True, values=array)

    # --- helpers that the parser uses throughout -------------------------------------------------------------

    def helper(self, name: str) -> str | None:
        """Base name of a layer that the parser adds on its own: named from TensorRT 9 on."""
        return f"ONNXTRT_{name}" if self._modern_names else None

    def cast(self, ref: Ref, dtype: DType) -> Ref:
        """Cast as the parser adds it for its own ends."""
        kind = LayerKind.CAST if self.parser.has("helper_cast_layer") else LayerKind.IDENTITY
        return self.add(
            kind, (ref,), ref.shape, dtype, {"to": dtype.value}, base=self.helper("castHelper"), values=ref.values
        )

    def identity(self, operand: Ref | Weights) -> Ref | Weights:
        """A copy; weights need none."""
        if operand.is_weights:
            return operand
        ref = self.tensor(operand)
        return self.add(
            LayerKind.IDENTITY, (ref,), ref.shape, ref.dtype, base=self.helper("identity"), values=ref.values
        )

    def shuffle(
        self,
        ref: Ref,
        reshape: tuple[int, ...] | None = None,
        *,
        first: tuple[int, ...] | None = None,
        second: tuple[int, ...] | None = None,
        extra: Sequence[Ref] = (),
        base: str | None = "",
    ) -> Ref:
        """SHUFFLE: transpose, reshape (to the concrete shape given), transpose. `extra` is a runtime shape."""
        shape = reshape
        if reshape is None:
            shape = None if ref.shape is None or extra else _permute(ref.shape, first)
        attributes = {"first_transpose": first, "reshape": reshape, "second_transpose": second}
        values = shaped(ref, shape) if first is None and second is None else None
        out = _permute(shape, second) if shape is not None else None
        return self.add(LayerKind.SHUFFLE, (ref, *extra), out, ref.dtype, attributes, base=base, values=values)

    def unsqueeze(self, ref: Ref, axes: Sequence[int]) -> Ref:
        """Insert dimensions of size 1 at `axes` (positions in the result)."""
        shape = None if ref.shape is None else _inserted(ref.shape, axes)
        if not self.parser.has("squeeze_layer"):
            return self.shuffle(ref, shape, base=self.helper("unsqueezeTensor"))
        where = self.constant(list(axes), DType.INT32)
        return self.add(
            LayerKind.UNSQUEEZE,
            (ref, where),
            shape,
            ref.dtype,
            base=self.helper("unsqueezeTensor"),
            values=shaped(ref, shape),
        )

    def squeeze(self, ref: Ref, axes: Sequence[int]) -> Ref:
        """Take out the dimensions `axes`."""
        shape = None if ref.shape is None else tuple(d for i, d in enumerate(ref.shape) if i not in axes)
        if not self.parser.has("squeeze_layer"):
            return self.shuffle(ref, shape, base=self.helper("squeezeTensor"))
        where = self.constant(list(axes), DType.INT32)
        return self.add(
            LayerKind.SQUEEZE,
            (ref, where),
            shape,
            ref.dtype,
            base=self.helper("squeezeTensor"),
            values=shaped(ref, shape),
        )

    def broadcast(self, ref: Ref, rank: int | None) -> Ref:
        """Put dimensions of size 1 in front until `ref` has `rank` dimensions, as elementwise layers want."""
        if rank is None or ref.shape is None or len(ref.shape) >= rank:
            return ref
        return self.shuffle(ref, (1,) * (rank - len(ref.shape)) + ref.shape, base=self.helper("Broadcast"))

    def broadcast_pair(self, a: Ref, b: Ref) -> tuple[Ref, Ref]:
        """Bring two tensors to one rank."""
        if a.shape is None or b.shape is None:
            return a, b
        rank = max(len(a.shape), len(b.shape))
        return self.broadcast(a, rank), self.broadcast(b, rank)

    def elementwise(self, a: Ref, b: Ref, op: str, *, base: str | None = "") -> Ref:
        """ELEMENTWISE of two tensors of one rank."""
        if a.dtype is not b.dtype and self._strict and DType.UNKNOWN not in (a.dtype, b.dtype):
            raise Refused(f"{op} of {a.dtype.value} and {b.dtype.value}, in a strongly typed network.")
        dtype = DType.BOOL if op in _BOOLEAN else a.dtype
        shape = broadcast_shape(a.shape, b.shape)
        values = _computed(op, a.values, b.values)
        return self.add(LayerKind.ELEMENTWISE, (a, b), shape, dtype, {"op": op}, base=base, values=values)

    def unary(self, ref: Ref, op: str, *, base: str | None = "") -> Ref:
        """UNARY."""
        dtype = DType.BOOL if op in {"NOT", "ISINF", "ISNAN"} else ref.dtype
        return self.add(LayerKind.UNARY, (ref,), ref.shape, dtype, {"op": op}, base=base)

    def activation(self, ref: Ref, kind: str, alpha: float = 0.0, beta: float = 0.0, *, base: str | None = "") -> Ref:
        """ACTIVATION."""
        attributes = {"type": kind, "alpha": alpha, "beta": beta}
        return self.add(LayerKind.ACTIVATION, (ref,), ref.shape, ref.dtype, attributes, base=base)

    def reduce(self, ref: Ref, op: str, axes: Sequence[int], keep_dims: bool, *, base: str | None = "") -> Ref:
        """REDUCE over `axes`, which are not negative."""
        shape = None
        if ref.shape is not None:
            kept = ((i, d) for i, d in enumerate(ref.shape) if keep_dims or i not in axes)
            shape = tuple(1 if i in axes else d for i, d in kept)
        attributes = {"op": op, "axes": tuple(sorted(set(axes))), "keep_dims": keep_dims}
        return self.add(LayerKind.REDUCE, (ref,), shape, ref.dtype, attributes, base=base)

    def select(self, condition: Ref, yes: Ref, no: Ref, *, base: str | None = "") -> Ref:
        """SELECT of three tensors of one rank."""
        shape = broadcast_shape(broadcast_shape(condition.shape, yes.shape), no.shape)
        return self.add(LayerKind.SELECT, (condition, yes, no), shape, yes.dtype, base=base)

    def concat(self, refs: Sequence[Ref], axis: int, *, base: str | None = "") -> Ref:
        """CONCATENATION along `axis`, which is not negative."""
        shape = None
        if all(ref.shape is not None and axis < len(ref.shape) for ref in refs):
            first = refs[0].shape
            assert first is not None
            total = sum(ref.shape[axis] for ref in refs if ref.shape is not None)
            shape = (*first[:axis], total, *first[axis + 1 :])
        values = None
        if all(ref.values is not None and ref.values.ndim == 1 for ref in refs):
            values = np.concatenate([ref.values for ref in refs if ref.values is not None])
        return self.add(LayerKind.CONCATENATION, refs, shape, refs[0].dtype, {"axis": axis}, base=base, values=values)

    def matmul(self, a: Ref, op0: str, b: Ref, op1: str, *, base: str | None = "") -> Ref:
        """MATRIX_MULTIPLY; the operations are NONE, TRANSPOSE or VECTOR."""
        shape = _product_shape(a.shape, op0, b.shape, op1)
        return self.add(LayerKind.MATRIX_MULTIPLY, (a, b), shape, a.dtype, {"op0": op0, "op1": op1}, base=base)

    def slice(
        self,
        ref: Ref,
        start: Sequence[int],
        size: Sequence[int],
        stride: Sequence[int],
        *,
        mode: str = "STRICT_BOUNDS",
        base: str | None = "",
    ) -> Ref:
        """SLICE with all parameters known, for all dimensions."""
        attributes = slice_attributes(tuple(start), tuple(size), tuple(stride), mode)
        values = None
        if ref.values is not None and ref.values.ndim == 1 and len(size) == 1 and mode == "STRICT_BOUNDS":
            values = pick_range(ref.values, start[0], size[0], stride[0])
        return self.add(LayerKind.SLICE, (ref,), tuple(size), ref.dtype, attributes, base=base, values=values)

    # --- the end ---------------------------------------------------------------------------------------------

    def finish(self, reserved: Mapping[str, Ref]) -> tuple[Layer, ...]:
        """The layers as values. Names in `reserved` belong to those tensors; others make way for them."""
        tensors: dict[int, Tensor] = {}
        taken = set(reserved)

        def tensor(ref: Ref) -> Tensor:
            done = tensors.get(id(ref))
            if done is not None:
                return done
            name = ref.name
            if reserved.get(name) is not ref:
                count = 0
                while name in taken:
                    name = f"{ref.name}_{count}"
                    count += 1
                taken.add(name)
            made = tensors[id(ref)] = Tensor(name, ref.shape, ref.dtype, ref.constant)
            return made

        return tuple(
            [
                Layer(
                    index,
                    draft.name,
                    draft.kind,
                    tuple([tensor(ref) for ref in draft.inputs]),
                    tuple([tensor(ref) for ref in draft.outputs]),
                    (draft.node,) if draft.node else (),
                    draft.attributes,
                )
                for index, draft in enumerate(self._drafts)
            ]
        )


_BOOLEAN = frozenset({"EQUAL", "GREATER", "LESS", "AND", "OR", "XOR"})


def pick(values: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Elements of a known vector. Raises Refused for an index outside of it."""
    try:
        return np.asarray(values[indices])
    except IndexError as error:
        raise Refused("An index lies outside its data.") from error


def pick_range(values: np.ndarray, start: int, size: int, stride: int) -> np.ndarray | None:
    """`size` elements of a known vector from `start` on; None if they are too many to be shape arithmetic."""
    if size > SMALL:
        return None
    return pick(values, np.array([start + i * stride for i in range(size)], dtype=np.int64))


def slice_attributes(
    start: tuple[int, ...] | None,
    size: tuple[int, ...] | None,
    stride: tuple[int, ...] | None,
    mode: str = "STRICT_BOUNDS",
    fill_value: float | None = None,
    axes: tuple[int, ...] | None = None,
) -> dict[str, Any]:
    """The attributes of a SLICE layer."""
    return {"start": start, "size": size, "stride": stride, "mode": mode, "fill_value": fill_value, "axes": axes}


def broadcast_shape(a: tuple[int, ...] | None, b: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """The shape of an elementwise result; None if one is unknown or they do not fit."""
    if a is None or b is None:
        return None
    if a == b:
        return a
    rank = max(len(a), len(b))
    pairs = list(zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b, strict=True))
    if any(x != y and 1 not in (x, y) for x, y in pairs):
        return None
    return tuple(y if x == 1 else x for x, y in pairs)


def _permute(shape: tuple[int, ...], order: tuple[int, ...] | None) -> tuple[int, ...]:
    return shape if order is None else tuple(shape[i] for i in order)


def _inserted(shape: tuple[int, ...], axes: Sequence[int]) -> tuple[int, ...]:
    dims = list(shape)
    for axis in sorted(axes):
        dims.insert(axis, 1)
    return tuple(dims)


def shaped(ref: Ref, shape: tuple[int, ...] | None) -> np.ndarray | None:
    """The known values of `ref` in another shape; None if there are none or they do not fit."""
    if ref.values is None or shape is None or len(shape) > _MOST_DIMENSIONS or prod(shape) != ref.values.size:
        return None
    return ref.values.reshape(shape)


def _product_shape(a: tuple[int, ...] | None, op0: str, b: tuple[int, ...] | None, op1: str) -> tuple[int, ...] | None:
    if a is None or b is None:
        return None
    if min(len(a) - (op0 != "VECTOR"), len(b) - (op1 != "VECTOR")) < 1:
        raise Refused("A matrix with fewer than two dimensions.")
    rows = () if op0 == "VECTOR" else (a[-1] if op0 == "TRANSPOSE" else a[-2],)
    columns = () if op1 == "VECTOR" else (b[-2] if op1 == "TRANSPOSE" else b[-1],)
    batch = broadcast_shape(a[: -1 if op0 == "VECTOR" else -2], b[: -1 if op1 == "VECTOR" else -2])
    return None if batch is None else (*batch, *rows, *columns)


def _uniform(array: np.ndarray) -> float | None:
    """The one value that all elements have, as a float; None if there is none or it is no number."""
    if array.size == 0 or array.dtype.kind not in "fiub" or (array.size > 1 and not (array == array.flat[0]).all()):
        return None
    return float(array.flat[0])


def _peek(weights: Weights) -> float | None:
    array = weights.read()
    return None if array is None else _uniform(np.asarray(array))


def _computed(op: str, a: np.ndarray | None, b: np.ndarray | None) -> np.ndarray | None:
    """Integer arithmetic of shapes, where both operands are known."""
    if a is None or b is None or a.dtype.kind not in "iub" or b.dtype.kind not in "iub":
        return None
    function = _ARITHMETIC.get(op)
    if function is None or (op in {"DIV", "FLOOR_DIV"} and not b.all()):
        return None
    try:
        return np.asarray(function(a.astype(np.int64), b.astype(np.int64)))
    except ValueError:
        return None


def _truncated(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.asarray(np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b)))


_ARITHMETIC: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "SUM": np.add,
    "SUB": np.subtract,
    "PROD": np.multiply,
    "MIN": np.minimum,
    "MAX": np.maximum,
    "FLOOR_DIV": np.floor_divide,
    "DIV": _truncated,
    "EQUAL": np.equal,
    "GREATER": np.greater,
    "LESS": np.less,
}
