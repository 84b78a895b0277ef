"""Reading a node's attributes and constant inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orinport.model.lower.network import Ref, Refused, Unclear, Weights

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

    from orinport.model.layer import DType

__all__ = [
    "axis_of",
    "has",
    "integer",
    "integers",
    "need",
    "real",
    "reals",
    "refuse_types",
    "text",
    "whole_numbers",
]


def _value(node: ir.Node, name: str) -> Any:
    attribute = node.attributes.data.get(name)  # the dict inside: this is asked for very often
    return None if attribute is None else attribute.value


def has(node: ir.Node, name: str) -> bool:
    """Whether the node carries the attribute."""
    return name in node.attributes.data


def integer(node: ir.Node, name: str, default: int) -> int:
    """An INT attribute."""
    value = _value(node, name)
    return default if value is None else int(value)


def real(node: ir.Node, name: str, default: float) -> float:
    """A FLOAT attribute."""
    value = _value(node, name)
    return default if value is None else float(value)


def text(node: ir.Node, name: str, default: str) -> str:
    """A STRING attribute."""
    value = _value(node, name)
    if value is None:
        return default
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def integers(node: ir.Node, name: str) -> tuple[int, ...] | None:
    """An INTS attribute, or None."""
    value = _value(node, name)
    return None if value is None else tuple(value)


def reals(node: ir.Node, name: str) -> tuple[float, ...] | None:
    """A FLOATS attribute, or None."""
    value = _value(node, name)
    return None if value is None else tuple(float(v) for v in value)


def need(inputs: Sequence[Ref | Weights | None], index: int) -> Ref | Weights:
    """The input at `index`, which the operator cannot do without."""
    operand = inputs[index] if index < len(inputs) else None
    if operand is None:
        raise Refused(f"Input {index} is missing.")
    return operand


def axis_of(axis: int, rank: int | None) -> int:
    """`axis` counted from the front."""
    if axis >= 0:
        if rank is not None and axis > rank:
            raise Refused(f"Axis {axis} is out of range for rank {rank}.")
        return axis
    if rank is None:
        raise Unclear("A negative axis of a tensor of unknown rank.")
    if axis + rank < 0:
        raise Refused(f"Axis {axis} is out of range for rank {rank}.")
    return axis + rank


def whole_numbers(operand: Ref | Weights | None) -> tuple[int, ...] | None:
    """The elements of a small constant input as integers; None if it is absent or not known."""
    if operand is None:
        return None
    values = operand.small() if isinstance(operand, Weights) else operand.values
    return None if values is None else tuple(int(v) for v in values.reshape(-1).tolist())


def refuse_types(operand: Ref | Weights, *types: DType) -> None:
    """Refuse as the parser does for element types that it does not take here."""
    if operand.dtype in types:
        raise Refused(f"The element type {operand.dtype.value} is not taken here.")
