"""What is noticed about scales: findings with codes Q0xx, whose pages are the modules of `precision.catalogue`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.rules.finding import Finding
from orinport.targets.catalogue import catalogue_rows
from orinport.targets.target import Confidence
from orinport.words import count, some

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orinport.model.layer import Layer
    from orinport.precision.weight_steps import LostWeights
    from orinport.targets.target import RuleRow

__all__ = [
    "absurd_range",
    "coarse_weights",
    "conflicting_scales",
    "constant_activation",
    "costly_products",
    "fused_convolution",
    "infinite_constant",
    "integer_edge",
    "invalid_scale",
    "invalid_weight_scale",
    "large_constant",
    "missing_scale",
    "nonfinite_activation",
    "repeated_entry",
    "saturated_weights",
    "tied_ranges",
    "unknown_tensor",
    "unwritable_name",
    "vanishing_constant",
    "weight_scales",
]

_MEASURED = "measured on the given data"
_GIVEN = "the given file"


def _finding(
    code: str,
    message: str,
    advice: str,
    *,
    value: object = None,
    limit: object = None,
    source: str = _GIVEN,
    confidence: Confidence = Confidence.OBSERVED,
    layer: Layer | None = None,
    rows: tuple[str, ...] = (),
) -> Finding:
    name, nodes = ("", ()) if layer is None else (layer.name, layer.nodes)
    return Finding(code, name, nodes, message, value, limit, advice, None, source, confidence, None, rows)


def _of_row(row: str | RuleRow) -> tuple[str, Confidence, tuple[str, ...]]:
    spoken = catalogue_rows()[row] if isinstance(row, str) else row
    return spoken.source, spoken.confidence, (spoken.id,)


def _quoted(names: Sequence[str]) -> str:
    return some([repr(name) for name in names])


def missing_scale(layer: Layer, names: Sequence[str], region: int) -> Finding:
    """A DLA layer with tensors that have no scale."""
    source, confidence, rows = _of_row("I01")
    have = "has" if len(names) == 1 else "have"
    return _finding(
        "Q001",
        f"{_quoted(names)} {have} no scale: the layer runs in FP16, in DLA region {region}, or is refused where FP16 is"
        " off.",
        "Calibrate with data that reaches this layer, or give the scale in a JSON file.",
        value=len(names),
        limit=0,
        source=source,
        confidence=confidence,
        layer=layer,
        rows=rows,
    )


def conflicting_scales(name: str, scales: Sequence[float]) -> Finding:
    """One tensor with several quantisers of different scales."""
    chosen = max(scales)
    return _finding(
        "Q002",
        f"{name!r} is quantised with {count(len(scales), 'different scale')}:"
        f" {', '.join(f'{each:.6g}' for each in sorted(scales))}; the DLA has one scale a tensor, and the largest,"
        f" {chosen:.6g}, is taken, so that nothing saturates.",
        "Give both quantisers one scale when training or calibrating, e.g. by one shared quantiser.",
        value=max(scales) / min(scales),
        limit=1,
    )


def repeated_entry(name: str, first: float, second: float) -> Finding:
    """A file that holds two scales of one name."""
    return _finding(
        "Q002",
        f"{name!r} has two scales, {first:.6g} and {second:.6g}; the larger is taken.",
        "Remove one of the two lines.",
        value=max(first, second) / min(first, second),
        limit=1,
    )


def invalid_scale(name: str, value: float) -> Finding:
    """A scale that is NaN, infinite, zero or negative."""
    return _finding(
        "Q003",
        f"The scale of {name!r} is {value:g}, which is not a finite positive number; it is left out.",
        "Calibrate the tensor again.",
        value=value,
        limit="> 0",
    )


def invalid_weight_scale(name: str, value: float, channels: int) -> Finding:
    """A scale of constants that is NaN, infinite, negative, or zero where the integers are not."""
    return _finding(
        "Q003",
        f"The constants {name!r} have the scale {value:g}, the first of {channels} that"
        f" {'is' if channels == 1 else 'are'} not finite and positive; they are what the network makes of it.",
        "Quantise the weights again.",
        value=value,
        limit="> 0",
    )


def weight_scales(names: Sequence[str], largest: float) -> Finding:
    """Weights whose scales are not max |w| / 127 of each output channel."""
    return _finding(
        "Q004",
        f"The weights {_quoted(names)} are quantised with scales other than max |w| / 127 of each output channel"
        f" (off by up to a factor of {largest:.3g}); TensorRT quantises weights itself, by that rule, so they are"
        " rounded once more.",
        "Quantise weights by output channel with their largest magnitude.",
        value=largest,
        limit=1,
        source="NVIDIA/Deep-Learning-Accelerator-SW, qdq-translator",
    )


def saturated_weights(weights: Sequence[LostWeights]) -> Finding:
    """Weights that are beyond what their scales can hold."""
    order = sorted(weights, key=lambda each: -abs(each.largest) / max(abs(each.kept), 1e-300))
    told = [
        f"{each.lost} of {count(each.elements, 'element')} of {each.name!r}"
        f" (the largest, {each.largest:.3g}, becomes {each.kept:.3g})"
        for each in order
    ]
    return _finding(
        "Q004",
        f"The scales of weights are too small for them: {some(told)} saturate, in the given network and in this one.",
        "Quantise the weights again, by output channel with their largest magnitude.",
        value=sum(each.lost for each in weights),
        limit=0,
        source="the given network",
    )


def coarse_weights(weights: Sequence[LostWeights]) -> Finding:
    """Weights whose steps are too large to tell them apart."""
    order = sorted(weights, key=lambda each: -each.kept / each.largest)
    told = [
        f"{each.lost} of {count(each.elements, 'element')} of {each.name!r}"
        f" (steps of {each.kept:.3g} where the largest magnitude is {each.largest:.3g})"
        for each in order
    ]
    factor = 127 * order[0].kept / order[0].largest
    return _finding(
        "Q004",
        f"The scales of weights are up to {factor:.3g} times too large for them: {some(told)} become zero, in the given"
        " network and in this one.",
        "Quantise the weights again, by output channel with their largest magnitude.",
        value=factor,
        limit=1,
        source="the given network",
    )


def tied_ranges(layer: Layer, names: Sequence[str], factor: float, worst: str, row: RuleRow) -> Finding:
    """Ranges that were widened because the DLA wants them equal."""
    source, confidence, rows = _of_row(row)
    return _finding(
        "Q005",
        f"The DLA wants one range for {_quoted(names)}; the widest is taken, and {worst!r} loses a factor of"
        f" {factor:.3g} in resolution.",
        "Train or calibrate with a shared range, or run the layer in FP16.",
        value=factor,
        limit=1,
        source=source,
        confidence=confidence,
        layer=layer,
        rows=rows,
    )


def costly_products(lost: Sequence[tuple[str, float]], layers: Sequence[Layer], row: RuleRow) -> Finding:
    """Tensors with the factors that ties at products take from them, the largest first, and these products."""
    source, confidence, rows = _of_row(row)
    told = [f"{name!r} a factor of {factor:.3g} ({127 / factor:.0f} of 127 steps left)" for name, factor in lost]
    return _finding(
        "Q013",
        f"Equal ranges at the inputs of products cost {count(len(lost), 'tensor')} most of the resolution:"
        f" {some(told)}.",
        "Compare with --ties except-products, as NVIDIA's own translator does it, in verify --as dla-int8 and on a"
        f" board; or compute the products in FP16: --fp16 {_quoted([layer.name for layer in layers])}.",
        value=lost[0][1],
        limit=1,
        source=source,
        confidence=confidence,
        layer=layers[0],
        rows=rows,
    )


def unknown_tensor(names: Sequence[str]) -> Finding:
    """Scales for tensors that the network does not have."""
    what = "is no tensor" if len(names) == 1 else "are no tensors"
    return _finding(
        "Q006",
        f"{_quoted(names)} {what} of the network that a layer reads or writes at run time; the scales have no effect.",
        "Check that the scales were made for this network and its tensor names.",
        value=len(names),
        limit=0,
    )


def absurd_range(name: str, range_: float, why: str) -> Finding:
    """A range that no activation of a working network has."""
    return _finding(
        "Q007",
        f"The range of {name!r} is {range_:.3g}: {why}.",
        "Look at the tensor on real data before trusting the scale.",
        value=range_,
    )


def constant_activation(name: str, value: float) -> Finding:
    """A tensor that has one value, or only zeros, on all data."""
    what = "only zeros" if value == 0 else f"only the value {value:.6g}"
    return _finding(
        "Q008",
        f"{name!r} holds {what} on all data, so its scale says nothing about other data.",
        "Calibrate with data that makes this part of the network active.",
        value=value,
        source=_MEASURED,
    )


def nonfinite_activation(name: str, number: int, seen: int) -> Finding:
    """NaN or infinities in a tensor."""
    return _finding(
        "Q009",
        f"{number} of {seen} elements of {name!r} are NaN or infinite on the data; they are left out of the scale.",
        "Find out where the network overflows, and give it the data that it was trained on.",
        value=number,
        limit=0,
        source=_MEASURED,
    )


def fused_convolution(layer: Layer, name: str, other: str) -> Finding:
    """A convolution output with the mark 1.0."""
    return _finding(
        "Q010",
        f"{name!r} has no scale of its own and gets 1.0, by which the DLA's compiler fuses the convolution with the"
        f" addition behind it; the other operand {other!r} has a scale. On the GPU 1.0 would be wrong.",
        "Build for the DLA only, or quantise the convolution's output too.",
        value=1.0,
        source="NVIDIA/Deep-Learning-Accelerator-SW, qdq-translator (DLA software 3.13 and newer)",
        layer=layer,
    )


def unwritable_name(name: str) -> Finding:
    """A tensor whose name a calibration cache cannot hold."""
    return _finding(
        "Q012",
        f"The tensor name {name!r} does not fit into one line, and a calibration cache has one line a tensor; its scale"
        " is left out.",
        "Rename the tensor in the network.",
        value=name,
        source="NVIDIA/Deep-Learning-Accelerator-SW, qdq-translator",
    )


def integer_edge(name: str, side: str) -> Finding:
    """An input or output that was in integers and is floating point now."""
    what = "took" if side == "input" else "gave"
    return _finding(
        "Q011",
        f"The network {what} {name!r} in integers; without its Q/DQ layers it is floating point, the integer times the"
        " scale. With INT8 as the format on the board the integers are the same as before.",
        "Scale the data, or use the INT8 format of the bundle.",
        source="the given network",
    )


_IEEE = "IEEE 754"


def large_constant(layer: Layer, name: str, value: float, limit: float) -> Finding:
    """A constant beyond FP16 in a layer that runs in FP16."""
    return _finding(
        "Q014",
        f"{name!r} holds {value:.6g}; FP16 ends at {limit:g}, and what the DLA's compiler makes of larger constants is"
        " not documented.",
        "Divide it and multiply what comes of it; a mask seldom needs more than -1e4. Or keep the layer on the GPU.",
        value=value,
        limit=limit,
        source=_IEEE,
        confidence=Confidence.DOCUMENTED,
        layer=layer,
    )


def vanishing_constant(layer: Layer, name: str, largest: float, limit: float) -> Finding:
    """Factors that all become 0 in FP16."""
    return _finding(
        "Q014",
        f"No element of {name!r} is larger than {largest:.3g}: in FP16 all of them become 0.",
        "Multiply it and divide what comes of it, or keep the layer on the GPU.",
        value=largest,
        limit=limit,
        source=_IEEE,
        confidence=Confidence.DOCUMENTED,
        layer=layer,
    )


def infinite_constant(layer: Layer, name: str, number: int) -> Finding:
    """A constant with elements that are NaN or infinite."""
    return _finding(
        "Q014",
        f"{count(number, 'element')} of {name!r} {'is' if number == 1 else 'are'} NaN or infinite.",
        "Find out how it came into the network, and write the network again.",
        value=number,
        limit=0,
        layer=layer,
    )
