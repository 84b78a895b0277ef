"""Networks with a dynamic batch, although everything here works on numbers.

A network is read at two batches. What differs between the two depends on the batch; reshapes are opened there, and
the inputs get their symbols back.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from orinport.errors import OrinportError
from orinport.model.infer import infer_missing
from orinport.model.load import declared_inputs, load
from orinport.model.model import Model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["BATCHES", "Dims", "dynamic_again", "dynamic_inputs", "load_any", "with_batch"]

BATCHES = (2, 3)
"""Batches at which a dynamic network is read."""

Dims = dict[str, list[int | str]]
"""Dimensions of inputs, symbols by name."""


def load_any(source: Any, *, side: int | None = None) -> Model:
    """As `orinport.model.load`, but a dynamic batch stays dynamic. Raises OrinportError if it cannot.

    `side` becomes the height and width of pictures where the network leaves them open.
    """
    declared = declared_inputs(source)
    sized = {} if side is None else {name: made for name, dims in declared.items() if (made := _sized(dims, side))}
    dims = _dynamic({**declared, **sized})
    if not dims:
        return load(source, shapes=with_batch(sized, 1))
    first, second = (load(source, shapes=with_batch({**sized, **dims}, batch)) for batch in BATCHES)
    return dynamic_again(first, second, dims)


def _sized(dims: Sequence[int | str], side: int) -> list[int | str] | None:
    """Dimensions (N, C, H, W) with H and W `side` where they are dynamic; None if nothing is."""
    if len(dims) != 4 or not any(isinstance(dim, str) for dim in dims[2:]):
        return None
    return [*dims[:2], *(side if isinstance(dim, str) else dim for dim in dims[2:])]


def dynamic_inputs(source: Any) -> Dims:
    """Inputs with a dynamic batch, with all their dimensions; `source` is anything that `load` takes.

    Raises OrinportError if the network cannot be read, or if more of it is dynamic than the batch.
    """
    return _dynamic(declared_inputs(source))


def _dynamic(declared: Mapping[str, Sequence[int | str]]) -> Dims:
    found: Dims = {}
    for name, dims in declared.items():
        symbols = [dim for dim in dims if isinstance(dim, str)]
        if not symbols:
            continue
        if len(set(symbols)) > 1 or symbols.count("?") > 1 or not isinstance(dims[0], str):
            raise OrinportError(
                f"The input {name!r} is dynamic in more than its batch: {'x'.join(map(str, dims))}.",
                "Fix height and width first.",
            )
        found[name] = ["batch" if dim == "?" else dim for dim in dims]
    return found


def with_batch(dims: Dims, batch: int) -> dict[str, list[int]]:
    """Shapes of the inputs in `dims` with every dynamic dimension `batch`, as `load` takes them."""
    return {name: [dim if isinstance(dim, int) else batch for dim in each] for name, each in dims.items()}


def dynamic_again(first: Model, second: Model, dims: Dims) -> Model:
    """One network with dynamic inputs from the same network at two batches."""
    for node, other in zip(first.graph, second.graph, strict=True):
        assert node.op_type == other.op_type, "rewriting depends on the batch"
        for index, (value, twin) in enumerate(zip(node.inputs, other.inputs, strict=True)):
            if value is None or twin is None or value.const_value is None or value.const_value is twin.const_value:
                continue
            _same_or_open(first, node, index, twin)
    for value in first.graph.inputs:
        if value.name in dims:
            value.shape = ir.Shape(dims[value.name])
    for node in first.graph:
        for value in node.outputs:
            if value.const_value is None:
                value.shape = None
    infer_missing(first.ir)
    return replace(first, _values={})


def _same_or_open(model: Model, node: ir.Node, index: int, twin: ir.Value) -> None:
    """Leave a constant that is equal at both batches; open the dimension of a reshape that is not."""
    value = node.inputs[index]
    assert value is not None
    assert value.const_value is not None
    assert twin.const_value is not None
    ours, theirs = value.const_value.numpy(), twin.const_value.numpy()
    if ours.shape == theirs.shape and np.array_equal(ours, theirs, equal_nan=ours.dtype.kind == "f"):
        return
    target = _open(ours, theirs) if node.op_type == "Reshape" and index == 1 else None
    if target is None:
        raise OrinportError(
            f"The input {index} of {node.op_type} {node.name!r} depends on the batch and cannot be kept dynamic.",
            "Give the network a fixed batch.",
        )
    name = f"{value.name}_dynamic"
    opened = model.graph.initializers.get(name)
    if opened is None:
        tensor = ir.tensor(target, name=name)
        opened = ir.Value(name=name, shape=ir.Shape(target.shape), type=ir.TensorType(tensor.dtype), const_value=tensor)
        model.graph.register_initializer(opened)
    node.replace_input_with(index, opened)
    if value.name and not value.uses():
        model.graph.initializers.pop(value.name, None)


def _open(ours: NDArray[Any], theirs: NDArray[Any]) -> NDArray[Any] | None:
    """The target of a reshape with the one dimension that differs left open."""
    if ours.shape != theirs.shape or np.count_nonzero(ours != theirs) != 1 or -1 in ours:
        return None
    return np.where(ours == theirs, ours, -1)
