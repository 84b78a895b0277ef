"""Whether a value can hold -inf on purpose: masks of attention and the like."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import onnx_ir as ir

    from orinport.rewrites.context import RewriteContext

__all__ = ["may_be_minus_infinity"]

_NODES = 256
_ELEMENTS = 1 << 16
_FINITE = frozenset({"Relu", "Sigmoid", "HardSigmoid", "Tanh", "Softmax", "Clip", "Softsign", "Erf"})
"""Operators whose result is bounded below whatever they read."""


def may_be_minus_infinity(value: ir.Value, context: RewriteContext) -> bool:
    """True if a constant that holds -inf, or a Log, lies on a way to `value`; looks at up to 256 nodes."""
    stack: list[ir.Value] = [value]
    seen: set[ir.Node] = set()
    while stack and len(seen) < _NODES:
        current = stack.pop()
        tensor = context.constant_tensor(current)
        if tensor is not None:
            array = context.constant(current) if tensor.size <= _ELEMENTS and context.is_float(current) else None
            if array is not None and bool(np.isneginf(array.astype(np.float32)).any()):
                return True
            continue
        node = current.producer()
        if node is None or node in seen or node.op_type in _FINITE:
            continue
        if node.op_type in ("Log", "LogSoftmax"):
            return True
        seen.add(node)
        stack.extend(each for each in node.inputs if each is not None)
    return False
