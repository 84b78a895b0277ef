"""What the layer rules share: which row speaks, whether values lie in its range, how a finding reads."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, cast

from orinport.model.layer import DType, LayerKind
from orinport.rules.finding import Finding, Fix, Verdict
from orinport.rules.fixes import CONV_TRANSPOSE_TO_UNPADDED, DECONV_TO_PHASES
from orinport.targets.target import Confidence, Precision

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from orinport.model.layer import Layer, Tensor
    from orinport.rules.rule import Context, Rule
    from orinport.targets.target import RuleRow

__all__ = [
    "COMPARISONS",
    "LOGICAL",
    "between",
    "bounds",
    "by",
    "deconvolution_fix",
    "finding",
    "fuses_into_convolution",
    "holding",
    "is_boolean",
    "is_cast_on_dla",
    "is_or_equal",
    "is_per_channel",
    "is_truth",
    "joins_comparisons",
    "resize_scales",
    "slice_extent",
    "softmax_extent",
    "speaking",
    "takes_comparison",
    "takes_division",
    "takes_power",
    "unshaped",
    "within",
]

COMPARISONS = frozenset({"EQUAL", "GREATER", "LESS"})
"""Element-wise operations that compare."""

LOGICAL = COMPARISONS | {"AND", "OR", "XOR"}
"""Element-wise operations that give or take truth values."""

_NO_DOCUMENT = "no document"
_STRENGTH = (Confidence.INFERRED, Confidence.OBSERVED, Confidence.DOCUMENTED)


def speaking(context: Context, ids: Iterable[str]) -> RuleRow | None:
    """The first of these rows that holds for the target, None if none does."""
    rows = context.rows
    for name in ids:
        row = rows.get(name)
        if row is not None:
            return row
    return None


def holding(context: Context, ids: Iterable[str]) -> tuple[RuleRow, ...]:
    """All of these rows that hold for the target."""
    return tuple(context.rows[name] for name in ids if name in context.rows)


def bounds(row: RuleRow) -> tuple[int, int]:
    """The row's `min` and `max`, both included."""
    values = row.values
    return values["min"], values["max"]


def within(values: Iterable[float], row: RuleRow) -> bool:
    """True if every value lies between the row's `min` and `max`."""
    low, high = row.values["min"], row.values["max"]
    for value in values:  # noqa: SIM110 - all() with a generator takes three times as long here
        if not low <= value <= high:
            return False
    return True


def by(values: Iterable[object]) -> str:
    """Sizes as people write them: `33x33`."""
    return "x".join(map(str, values))


def between(row: RuleRow) -> str:
    """The row's range in words: `1 to 32`."""
    low, high = bounds(row)
    return f"{low} to {high}" if low != high else str(low)


def finding(
    rule: Rule,
    layer: Layer | None,
    rows: RuleRow | Sequence[RuleRow],
    message: str,
    *,
    value: object,
    limit: object,
    advice: str,
    verdict: Verdict | None = Verdict.GPU,
    fix: tuple[str, str] | None = None,
) -> Finding:
    """A finding of `rule` on `layer`, or, if that is None, on the network.

    Source and confidence are those of the rows; the weakest confidence counts. Without a row the finding says that no
    document speaks.
    """
    spoken = tuple(rows) if isinstance(rows, (tuple, list)) else (cast("RuleRow", rows),)
    return Finding(
        code=rule.code,
        layer="" if layer is None else layer.name,
        nodes=() if layer is None else layer.nodes,
        message=message,
        value=value,
        limit=limit,
        help=advice,
        fix=Fix(*fix) if fix else None,
        source=_sources(spoken),
        confidence=min((row.confidence for row in spoken), key=_STRENGTH.index, default=Confidence.INFERRED),
        verdict=verdict,
        rows=tuple(row.id for row in spoken),
    )


def _sources(rows: Sequence[RuleRow]) -> str:
    parts = dict.fromkeys(part for row in rows for part in row.source.split("; "))
    if len(parts) > 1:
        parts.pop(_NO_DOCUMENT, None)
    return "; ".join(parts) or _NO_DOCUMENT


def outside(
    rule: Rule, layer: Layer, context: Context, key: str, *, advice: str, fix: tuple[str, str] | None = None
) -> Iterator[Finding]:
    """A finding if `layer[key]`, one number a dimension, leaves the range of the rule's row.

    Forms that the row lists under `allowed` are taken too.
    """
    row, value = speaking(context, rule.rows), layer[key]
    if row is None or within(value, row):
        return
    forms = row.values.get("allowed", ())
    if list(value) in forms:
        return
    more = f", or one of {', '.join(map(by, forms))}" if forms else ""
    message = f"The {key} is {by(value)}; the DLA takes {between(row)} in each dimension{more}."
    yield finding(rule, layer, row, message, value=value, limit=bounds(row), advice=advice, fix=fix)


def constant_operand(
    rule: Rule,
    layer: Layer,
    context: Context,
    ids: tuple[str, str, str],
    *,
    many: str,
    advice: str,
    fix: tuple[str, str] | None = None,
) -> Iterator[Finding]:
    """A finding on more constants than the first row takes.

    Else, as unknown, one on a constant that is not what the second row's page asks for; the third row is the doubt.
    """
    constants = [tensor for tensor in layer.inputs if tensor.constant]
    row, page, op = context.rows.get(ids[0]), context.rows.get(ids[1]), layer["op"]
    if row is not None and len(constants) > (most := row.values["max_constants"]):
        message = f"{len(constants)} inputs of {op} are constant; the DLA takes at most {most}."
        yield finding(rule, layer, row, message, value=len(constants), limit=most, advice=many)
        return
    if page is None or not constants or constants[0].shape is None:  # DLA103 speaks on the shape
        return
    found = (constants[0].volume, constants[0].dtype.value)
    asked = (page.values["constant_values"], page.values["constant_type"])
    if found != asked:
        yield finding(
            rule,
            layer,
            holding(context, ids[1:]),
            f"{op} with a constant of {found[0]} values in {found[1]}: which constants it takes is not documented.",
            value=found,
            limit=asked,
            advice=advice,
            verdict=Verdict.UNKNOWN,
            fix=fix,
        )


def only_precision(
    rule: Rule,
    layer: Layer,
    context: Context,
    name: str,
    ids: tuple[str, ...],
    *,
    advice: str,
    fix: tuple[str, str] | None = None,
) -> Iterator[Finding]:
    """A finding if the network's precision is not the one that the first row names.

    The other rows are doubts: where one of them holds, the layer is unknown.
    """
    row, doubt = context.rows.get(ids[0]), speaking(context, ids[1:])
    precision, version = context.precision.value, context.target.stack.tensorrt
    if doubt is not None:
        message = (
            f"No document says whether {name} is taken in {precision.upper()} in TensorRT {version} on"
            f" {context.target.platform.value.capitalize()}."
        )
        yield finding(rule, layer, doubt, message, value=precision, limit=None, advice=advice, verdict=Verdict.UNKNOWN)
    elif row is not None and precision != (taken := row.values["precision"]):
        message = f"{name} is taken in {taken.upper()} only, and the network is prepared in {precision.upper()}."
        yield finding(rule, layer, row, message, value=precision, limit=taken, advice=advice, fix=fix)


def deconvolution_fix(layer: Layer, context: Context) -> tuple[str, str] | None:
    """What takes padding and groups out of a deconvolution; None if its kernel is known at run time only.

    In INT8 the DLA takes no Slice that could cut the border off.
    """
    if not layer["constant_kernel"]:
        return None
    int8 = context.precision is Precision.INT8 and max(layer["stride"]) > 1
    return DECONV_TO_PHASES if int8 else CONV_TRANSPOSE_TO_UNPADDED


def unshaped(tensors: Iterable[Tensor]) -> bool:
    """True if a shape among them is not known: DLA103 says so, and limits on shapes stay silent."""
    return any(tensor.shape is None for tensor in tensors)


def is_boolean(layer: Layer, context: Context) -> bool:
    """True for NOT, AND and OR on BOOL tensors, the operations that the row K11 lists."""
    return layer.inputs[0].dtype is DType.BOOL and layer.attributes.get("op") in context.rows["K11"].values["refused"]


def joins_comparisons(layer: Layer, context: Context) -> bool:
    """True for an OR that joins GREATER or LESS with EQUAL of the same two inputs: greater-or-equal, less-or-equal."""
    if layer.attributes.get("op") != "OR":
        return False
    parts = [context.producers.get(tensor.name) for tensor in layer.inputs]
    if any(part is None or part.kind is not LayerKind.ELEMENTWISE for part in parts):
        return False
    ops = {part["op"] for part in parts if part is not None}
    reads = {tuple(tensor.name for tensor in part.inputs) for part in parts if part is not None}
    return len(reads) == 1 and ops in ({"GREATER", "EQUAL"}, {"LESS", "EQUAL"})


def is_or_equal(layer: Layer, context: Context) -> bool:
    """True for such an OR where the DLA takes it."""
    if layer.attributes.get("op") != "OR" or "K09" not in context.rows or "K01c" not in context.rows:
        return False
    return joins_comparisons(layer, context)


def is_truth(layer: Layer, context: Context) -> bool:
    """True if the layer gives truth values that a Cast right behind may turn into numbers on the DLA."""
    if layer.kind is not LayerKind.ELEMENTWISE:
        return False
    return layer["op"] in COMPARISONS or is_or_equal(layer, context)


def is_cast_on_dla(comparison: Layer, context: Context) -> bool:
    """True if a comparison is taken and its result goes into one Cast to a type that the DLA has, and nowhere else."""
    row = context.rows.get("K03")
    if row is None or not is_truth(comparison, context) or not takes_comparison(comparison, context):
        return False
    name = comparison.outputs[0].name
    readers = context.consumers.get(name, ())
    if len(readers) != 1 or name in context.outputs or readers[0].kind not in (LayerKind.CAST, LayerKind.IDENTITY):
        return False
    return readers[0].outputs[0].dtype.value in row.values["to"]


def takes_division(context: Context) -> bool:
    """True if the DLA takes a DIV on this target."""
    return "E03b" in context.rows or "E03c" in context.rows


def takes_power(context: Context) -> bool:
    """True if documents name POW for this target and precision: in INT8 only (row E10)."""
    return "E03b" in context.rows and context.precision is Precision.INT8


def takes_comparison(layer: Layer, context: Context) -> bool:
    """True if the comparison is taken here at all, so that its further conditions are worth a look (DLA022)."""
    if layer["op"] == "OR":
        return True  # is_or_equal() has looked at its parts
    return any(layer["op"] in row.values["allowed"] for row in holding(context, ("K01a", "K01b", "K01c")))


def is_per_channel(constant: Tensor, other: Tensor) -> bool:
    """True if `constant` is one, with one value or one for each channel of `other`."""
    if not constant.constant or constant.shape is None or other.shape is None:
        return False
    if constant.volume == 1:
        return True
    *before, channels, height, width = (1, 1, 1, *constant.shape)
    return height == width == 1 and set(before) == {1} and len(other.shape) > 2 and channels == other.shape[-3]


def fuses_into_convolution(layer: Layer, context: Context) -> bool:
    """True if what the layer does to each channel fits into the convolution before it, which nothing else reads."""
    runtime = layer.runtime_inputs
    if len(runtime) != 1:
        return False
    if layer.kind is LayerKind.ELEMENTWISE:
        if len(layer.inputs) != 2 or layer["op"] not in ("SUM", "PROD", "SUB", "DIV"):
            return False
        constant = layer.inputs[0] if layer.inputs[0].constant else layer.inputs[1]
        if layer["op"] == "DIV" and constant is layer.inputs[0]:
            return False
        if not is_per_channel(constant, runtime[0]):
            return False
    maker = context.producers.get(runtime[0].name)
    if maker is None or maker.kind not in (LayerKind.CONVOLUTION, LayerKind.DECONVOLUTION):
        return False
    alone = len(context.consumers.get(runtime[0].name, ())) == 1 and runtime[0].name not in context.outputs
    return alone and bool(maker["constant_kernel"])


def resize_scales(layer: Layer) -> tuple[float, ...] | None:
    """The scales of a Resize that is given by sizes, None if the shapes do not tell."""
    before, after = layer.inputs[0].shape, layer.outputs[0].shape
    if before is None or after is None or len(before) != len(after) or 0 in before:
        return None
    return tuple(new / old for new, old in zip(after, before, strict=True))


def slice_extent(layer: Layer, axis: int, key: str) -> int | None:
    """`start`, `size` or `stride` of a slice along `axis`, None if it is not constant or says nothing on the axis."""
    values, axes = layer[key], layer["axes"]
    if values is None:
        return None
    if axes is None:
        return int(values[axis])
    return int(values[axes.index(axis)]) if axis in axes else None


def softmax_extent(shape: tuple[int, ...], axis: int) -> tuple[int, int]:
    """Length of the axis, and the product of channel, height and width without it; batch takes no part."""
    others = [size for place, size in enumerate(shape) if place != axis and place >= len(shape) - 3]
    return shape[axis], prod(others)
