"""What the numbers are that a classifier gives: logits, or already probabilities."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

__all__ = ["final_activation"]

_KEEPING = frozenset(
    {
        "Cast",
        "DequantizeLinear",
        "Dropout",
        "Flatten",
        "Identity",
        "QuantizeLinear",
        "Reshape",
        "Squeeze",
        "Transpose",
        "Unsqueeze",
    }
)
"""What hands on its first input, value by value."""
_LAST_AXIS_SINCE = 13
"""Opset from which on Softmax works along one axis, by default the last; before, along all from `axis` on."""


def final_activation(models: Sequence[ir.Model], classes: int) -> str:
    """`Softmax` or `Sigmoid`, if that makes the only output: its values are probabilities then. Otherwise empty.

    `models` run one behind the other, the last of them first. A Softmax counts that is taken over the `classes`.
    """
    value: ir.Value | None = models[0].graph.outputs[0]
    left = list(models)
    while value is not None:
        node = value.producer()
        if node is None:
            left.pop(0)
            value = next((each for m in left[:1] for each in m.graph.outputs if each.name == value.name), None)
        elif node.domain in ("", "ai.onnx") and node.op_type in _KEEPING:
            value = node.inputs[0]
        elif node.domain in ("", "ai.onnx") and node.op_type == "Sigmoid":
            return "Sigmoid"
        elif node.domain in ("", "ai.onnx") and node.op_type == "Softmax":
            return "Softmax" if _is_over(node, left[0].graph.opset_imports.get("", 1), classes) else ""
        else:
            return ""
    return ""


def _is_over(node: ir.Node, opset: int, classes: int) -> bool:
    """The sum over that many values is one; true also where the shape is not known, since nothing else makes sense."""
    shape = node.outputs[0].shape if node.outputs[0].shape is not None else node.inputs[0].shape  # type: ignore[union-attr]
    if shape is None:
        return True
    given = node.attributes.get("axis")
    axis = given.as_int() if given is not None else -1 if opset >= _LAST_AXIS_SINCE else 1
    axes = list(shape)[axis:] if opset < _LAST_AXIS_SINCE else [shape[axis]]
    fixed = [each for each in axes if isinstance(each, int)]
    return len(fixed) < len(axes) or prod(fixed) == classes
