"""Shape arithmetic as the parser does it: folded while all values are known to it, layers where they are not.

The parser knows shapes and initializers; it does not look through a CAST of an initializer. `Vector.known`
is what the parser knows, `Vector.ref.values` what we know in addition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orinport.model.layer import LayerKind
from orinport.model.lower.network import Network, Ref, Refused, Unclear, Weights, pick, pick_range, slice_attributes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


__all__ = [
    "Vector",
    "add_slice",
    "constant_of_shape",
    "fill",
    "gather",
    "interlace",
    "join",
    "known",
    "make_shuffle",
    "of_operand",
    "of_tensor",
    "resolve",
    "shape_of",
    "similar",
    "subscripts_of",
    "v_add",
    "v_floor_div",
    "v_max",
    "v_min",
    "v_mul",
    "v_sub",
]


class Vector:
    """A 0-D or 1-D tensor of shape values, `known` to the parser or held in `ref`."""

    __slots__ = ("known", "rank", "ref", "size")

    def __init__(
        self, known: tuple[int, ...] | None, ref: Ref | None = None, *, rank: int = 1, size: int | None = None
    ) -> None:
        self.known = known
        self.ref = ref
        self.rank = rank
        self.size = len(known) if known is not None else size

    @property
    def values(self) -> tuple[int, ...] | None:
        """The values as far as anybody can know them at build time."""
        if self.known is not None:
            return self.known
        if self.ref is None or self.ref.values is None:
            return None
        return tuple(int(v) for v in self.ref.values.reshape(-1).tolist())

    def copy(self) -> Vector:
        """An equal vector: what becomes a tensor later becomes one of its own."""
        return Vector(self.known, self.ref, rank=self.rank, size=self.size)

    def tensor(self, net: Network) -> Ref:
        """This vector as a tensor of the network: a CONSTANT, once, if it is known."""
        if self.ref is None:
            assert self.known is not None
            values = np.asarray(self.known, dtype=np.int64)
            shape = () if self.rank == 0 else (len(self.known),)
            self.ref = net.constant(values, net.int64, shape, base=net.helper("ShapeTensorFromDims"))
        return self.ref


def known(*values: int, rank: int = 1) -> Vector:
    """A vector (or scalar) that the parser knows."""
    return Vector(values, rank=rank)


def of_tensor(ref: Ref) -> Vector:
    """A vector held in a tensor: the parser knows its size only."""
    rank = 1 if ref.shape is None else len(ref.shape)
    size = 1 if rank == 0 else (ref.shape[0] if ref.shape else None)
    return Vector(None, ref, rank=rank, size=size)


def of_operand(net: Network, operand: Ref | Weights) -> Vector:
    """Weights are known to the parser, tensors are not. Floating-point weights become a tensor."""
    if isinstance(operand, Weights) and not operand.dtype.is_float:
        values = operand.read()
        if values is not None:
            return Vector(tuple(int(v) for v in values.reshape(-1).tolist()), rank=min(len(operand.shape), 1))
    return of_tensor(net.tensor(operand))


def shape_of(net: Network, ref: Ref) -> Vector:
    """The shape of `ref`: known if it is concrete, else by SHAPE."""
    if ref.shape is not None:
        return Vector(ref.shape)
    out = net.add(LayerKind.SHAPE, (ref,), None, net.int64, base=net.helper("ShapeTensor"), constant=False)
    return of_tensor(net.cast(out, net.int64) if net.parser.has("int64") else out)


def _op(
    net: Network,
    a: Vector,
    b: Vector,
    op: str,
    identity: int | None,
    commutative: bool,
    function: Callable[[int, int], int],
) -> Vector:
    if a.size == 0:
        return a.copy()
    if b.size == 0:
        return b.copy()
    if identity is not None and a.size is not None and b.size is not None:
        if b.known is not None and all(v == identity for v in b.known) and b.size <= a.size:
            return a.copy()
        if commutative and a.known is not None and all(v == identity for v in a.known) and a.size <= b.size:
            return b.copy()
    if a.known is not None and b.known is not None:
        count = max(len(a.known), len(b.known))
        pairs = ((a.known[i % len(a.known)], b.known[i % len(b.known)]) for i in range(count))
        return Vector(tuple(function(x, y) for x, y in pairs), rank=a.rank)
    return of_tensor(net.elementwise(a.tensor(net), b.tensor(net), op, base=net.helper("ShapeElementWise")))


def v_add(net: Network, a: Vector, b: Vector) -> Vector:
    """a + b."""
    return _op(net, a, b, "SUM", 0, True, lambda x, y: x + y)


def v_sub(net: Network, a: Vector, b: Vector) -> Vector:
    """a - b."""
    return _op(net, a, b, "SUB", 0, False, lambda x, y: x - y)


def v_mul(net: Network, a: Vector, b: Vector) -> Vector:
    """a * b."""
    return _op(net, a, b, "PROD", 1, True, lambda x, y: x * y)


def v_min(net: Network, a: Vector, b: Vector) -> Vector:
    """min(a, b)."""
    return _op(net, a, b, "MIN", 2**63 - 1, True, min)


def v_max(net: Network, a: Vector, b: Vector) -> Vector:
    """max(a, b)."""
    return _op(net, a, b, "MAX", -(2**63), True, max)


def v_floor_div(net: Network, a: Vector, b: Vector) -> Vector:
    """a // b, rounded down."""
    return _op(net, a, b, "FLOOR_DIV", 1, False, lambda x, y: x // y if y else 0)


def fill(net: Network, value: int, count: Vector) -> Vector:
    """`value`, `count` times."""
    if count.known is not None:
        return Vector((value,) * count.known[0])
    one = known(value).tensor(net)
    return of_tensor(add_slice(net, one, known(0), count, known(0), base=net.helper("FillShapeVector")))


def similar(net: Network, like: Vector, value: int) -> Vector:
    """`value`, as often as `like` has elements."""
    if like.size is not None:
        return Vector((value,) * like.size)
    return fill(net, value, shape_of(net, like.tensor(net)))


def gather(net: Network, data: Vector, indices: Vector) -> Vector:
    """`data[indices]`."""
    if data.known is not None and indices.known is not None:
        if not all(-len(data.known) <= i < len(data.known) for i in indices.known):
            raise Refused("An index lies outside its data.")
        return Vector(tuple(data.known[i] for i in indices.known))
    ref, where = data.tensor(net), indices.tensor(net)
    values = None if ref.values is None or where.values is None else pick(ref.values, where.values)
    out = net.add(
        LayerKind.GATHER,
        (ref, where),
        where.shape,
        ref.dtype,
        {"mode": "DEFAULT", "axis": 0},
        base=net.helper("ShapeGather"),
        values=values,
    )
    return of_tensor(out)


def join(net: Network, a: Vector, b: Vector) -> Vector:
    """`a` followed by `b`."""
    if a.size == 0:
        return b.copy()
    if b.size == 0:
        return a.copy()
    if a.known is not None and b.known is not None:
        return Vector(a.known + b.known)
    refs = (a.tensor(net), b.tensor(net))
    return of_tensor(net.concat(refs, 0, base=net.helper("ShapeConcat")))


def subscripts_of(axes: Sequence[int], rank: int) -> Vector:
    """Where `interlace` takes each element from: `axes` from the second vector, the others from the first."""
    places = list(range(rank))
    for position, axis in enumerate(axes):
        places[axis] = rank + position
    return Vector(tuple(places))


def interlace(net: Network, a: Vector, b: Vector, subscripts: Vector) -> Vector:
    """Elements of `a` and `b`, picked by `subscripts`."""
    return gather(net, join(net, a, b), subscripts)


def make_shuffle(net: Network, ref: Ref, shape: Vector, *, base: str | None = "", zero_copies: bool = True) -> Ref:
    """SHUFFLE to `shape`, which may hold -1 and, with `zero_copies`, 0 for "as in the input"."""
    values = shape.values
    target = None if values is None else resolve(ref.shape, values, zero_copies)
    if shape.known is None:
        out = net.shuffle(ref, None, extra=(shape.tensor(net),), base=base)
        attributes = net.attributes_of(out)
        attributes["reshape"] = target
        out.shape = target
        out.constant = ref.constant and shape.tensor(net).constant
        return out
    out = net.shuffle(ref, target, base=base)
    if target is None:
        out.shape = None
    return out


def resolve(shape: tuple[int, ...] | None, wanted: Sequence[int], zero_copies: bool) -> tuple[int, ...] | None:
    """What a reshape with -1 and 0 comes to; None if that cannot be known."""
    dims: list[int] = []
    for position, value in enumerate(wanted):
        if value == 0 and zero_copies:
            if shape is None or position >= len(shape):
                return None
            dims.append(shape[position])
        else:
            dims.append(value)
    if -1 not in dims:
        return tuple(dims)
    if shape is None:
        return None
    rest = 1
    total = 1
    for value in dims:
        rest *= 1 if value == -1 else value
    for value in shape:
        total *= value
    free = dims.index(-1)
    dims[free] = total // rest if rest else 0
    return tuple(dims)


def add_slice(
    net: Network,
    ref: Ref,
    start: Vector,
    size: Vector,
    stride: Vector,
    *,
    mode: str = "STRICT_BOUNDS",
    axes: tuple[int, ...] | None = None,
    base: str | None = "",
) -> Ref:
    """SLICE whose parameters the parser may know or not; `axes` says which dimensions they are for."""
    extra = [vector.tensor(net) for vector in (start, size, stride) if vector.known is None]
    sizes = size.values
    shape: tuple[int, ...] | None = None
    if sizes is not None and axes is None:
        shape = sizes
    elif sizes is not None and axes is not None and ref.shape is not None:
        dims = list(ref.shape)
        for axis, value in zip(axes, sizes, strict=True):
            dims[axis] = value
        shape = tuple(dims)
    attributes = slice_attributes(start.values, sizes, stride.values, mode, None, axes)
    constant = ref.constant and all(t.constant for t in extra)
    values = None
    starts, strides = start.values, stride.values
    if ref.values is not None and ref.values.ndim == 1 and sizes and starts and strides and mode == "STRICT_BOUNDS":
        values = pick_range(ref.values, starts[0], sizes[0], strides[0])
    return net.add(
        LayerKind.SLICE, (ref, *extra), shape, ref.dtype, attributes, base=base, constant=constant, values=values
    )


def constant_of_shape(net: Network, value: Ref, shape: Vector) -> Ref:
    """`value` (one element), repeated to `shape` by a SLICE of stride 0."""
    if shape.size is None:
        raise Unclear("The rank of the result is unknown.")
    ones = (1,) * shape.size
    spread = value if value.shape == ones else net.shuffle(value, ones, base=net.helper("ShapeShuffle"))
    zeros = known(*([0] * shape.size))
    return add_slice(net, spread, zeros, shape, zeros, base=net.helper("ShapeSlice"))
