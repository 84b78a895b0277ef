"""`Greater(x, y) -> Cast(Cast(Greater(x, y), FP16), ...)`: comparisons in the form that the DLA takes in INT8.

## What it does
A single Cast to FP16 is put right behind a comparison; all that read its truth values, or cast them, read that one
instead. Thresholds for each channel are subtracted first and the difference is compared with zero; operands that the
DLA does not broadcast are copied to one shape. A threshold gets as many dimensions as the tensor: both comparisons of a
GreaterOrEqual read the same constant then.

## Why
In INT8 the DLA compares, Equal from TensorRT 8.5 on, Greater and Less from 10.3 on and on DRIVE OS 6.0.9, if the
result goes into one Cast to FP16 or INT8 and nowhere else. GreaterOrEqual and LessOrEqual arrive as two comparisons and
an Or, which are taken together from 10.3 on.

## Example
`Where(Greater(x, z), ...)` and `Cast(Greater(x, z), FP32)` of one comparison: one Cast to FP16, and Casts behind it.

## Refused
FP16, in which the DLA compares nothing; comparisons that the target does not take: the reason names them;
integers; operands that are both constant, or of a rank other than 4 where their shapes differ. `compare-to-clip` does
without a comparison, and goes first with consent where the mask is in FP32.

## Safety
exact: 0 and 1 are the same in every type, and a difference is 0 only of equal numbers. The Casts behind the first one
run on the GPU; a network in FP16 needs none.

## Source
Rows K01a to K03, K07 to K10 and X04a of the acceptance catalogue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from orinport.rewrites.catalogue._broadcast import spread
from orinport.rewrites.catalogue.compare_to_clip import COMPARISONS
from orinport.rewrites.catalogue.logic_to_arithmetic import becomes_number
from orinport.rewrites.rewrite import Match, Refusal, Rewrite, Safety
from orinport.targets.catalogue import rows_for
from orinport.targets.target import Precision

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orinport.rewrites.builder import Builder
    from orinport.rewrites.context import RewriteContext

__all__ = ["REWRITE", "CompareToCast"]

_PARTS = {
    "Equal": ("EQUAL",),
    "Greater": ("GREATER",),
    "Less": ("LESS",),
    "GreaterOrEqual": ("GREATER", "EQUAL"),
    "LessOrEqual": ("LESS", "EQUAL"),
}


@dataclass(frozen=True, slots=True)
class _Plan:
    """What becomes of a comparison and of the Casts of its truth values."""

    difference: bool
    """The operands are subtracted and compared with zero."""
    casts: tuple[ir.Node, ...]
    truth: bool
    """Something else reads the truth values."""


class CompareToCast(Rewrite):
    """A comparison gets the Cast behind it that the DLA asks for."""

    name = "compare-to-cast"
    safety = Safety.EXACT
    op_types = COMPARISONS

    def match(self, node: ir.Node, context: RewriteContext) -> Match | Refusal | None:
        first, second = node.inputs
        if first is None or second is None or not context.is_float(first):
            return Refusal("it compares integers or truth values, and the DLA has none")
        if context.is_constant(first) and context.is_constant(second):
            return Refusal("it is constant")
        shapes = [context.shape(value) for value in (first, second, node.outputs[0])]
        if any(shape is None for shape in shapes):
            return Refusal("the shape is not known")
        refusal = _not_taken(node, context)
        if refusal is not None:
            return refusal
        constant = next((value for value in (first, second) if context.is_constant(value)), None)
        difference = constant is not None and _several(constant, context)
        unequal = constant is None and shapes[0] != shapes[1]
        if unequal and any(shape is not None and len(shape) != 4 for shape in shapes):
            return Refusal("the operands differ in shape, and the DLA copies tensors of rank 4 only")
        truth = node.outputs[0]
        readers = context.consumers(truth)
        casts = tuple(each for each in readers if each.op_type == "Cast" and each.graph is context.graph)

        def half(cast: ir.Node) -> bool:
            return context.dtype(cast.outputs[0]) in (ir.DataType.FLOAT16, ir.DataType.INT8)

        right = len(readers) == 1 and len(casts) == 1 and not context.is_output(truth) and half(casts[0])
        scalar = (
            constant is not None and len(_PARTS[node.op_type]) > 1 and context.rank(constant) != len(shapes[2] or ())
        )
        if right and not difference and not unequal and not scalar:
            return None
        halves = bool(casts) and all(map(half, casts))
        if Safety.TOLERANCE in context.consent and becomes_number(truth, context) and not halves:
            return None
        rest = context.is_output(truth) or len(casts) < len(readers)
        outputs = (*(each.outputs[0] for each in casts), *([truth] if rest else []))
        return Match((node, *casts), outputs, _Plan(difference, casts, rest)) if outputs else None

    def apply(self, match: Match, builder: Builder) -> Sequence[ir.Value]:
        plan: _Plan = match.data
        first, second = _operands(match.nodes[0], plan, builder)
        compared = builder.op(match.nodes[0].op_type, first, second)
        number = builder.op("Cast", compared, to=int(ir.DataType.FLOAT16))
        results = []
        for cast in plan.casts:
            dtype = builder.context.dtype(cast.outputs[0])
            assert dtype is not None
            results.append(number if dtype is ir.DataType.FLOAT16 else builder.op("Cast", number, to=int(dtype)))
        if plan.truth:
            results.append(builder.op("Cast", number, to=int(ir.DataType.BOOL)))
        return results


def _not_taken(node: ir.Node, context: RewriteContext) -> Refusal | None:
    """Why the target's DLA takes no such comparison."""
    if context.target is None:
        return None
    if context.precision is not Precision.INT8:
        return Refusal("the DLA compares in INT8 only (DLA022), and the network is prepared in FP16")
    rows = rows_for(context.target, context.precision)
    taken = {op for name in ("K01a", "K01b", "K01c") if name in rows for op in rows[name].values["allowed"]}
    lacking = [op for op in _PARTS[node.op_type] if op not in taken]
    if lacking:
        version = context.target.stack.tensorrt
        return Refusal(f"the DLA does not take the comparison {lacking[0]} in TensorRT {version} (DLA022)")
    if len(_PARTS[node.op_type]) > 1 and "K09" not in rows:
        return Refusal("the DLA takes two comparisons joined by OR from TensorRT 10.3 on only (DLA035)")
    return None


def _several(value: ir.Value, context: RewriteContext) -> bool:
    """More than one value, all finite: only one may be compared with."""
    constant = context.constant(value)
    return constant is not None and constant.size > 1 and bool(np.isfinite(constant.astype(np.float64)).all())


def _operands(node: ir.Node, plan: _Plan, builder: Builder) -> tuple[ir.Value, ir.Value]:
    first, second = node.inputs
    assert first is not None
    assert second is not None
    if plan.difference:
        difference = builder.op("Sub", first, second)
        return difference, builder.like(difference, 0.0, (1,) * len(builder.shape(difference)))
    shape = builder.shape(node.outputs[0])
    return _shaped(first, shape, builder), _shaped(second, shape, builder)


def _shaped(value: ir.Value, shape: tuple[int, ...], builder: Builder) -> ir.Value:
    """A constant with as many dimensions, a tensor copied to the shape."""
    constant = builder.context.constant(value)
    if constant is not None:
        missing = (1,) * (len(shape) - constant.ndim)
        return builder.constant(constant.reshape((*missing, *constant.shape)), "threshold")
    return value if builder.shape(value) == shape else spread(value, shape, builder)


REWRITE = CompareToCast()
