"""`rank`: which INT8 layers are worth FP16.

Each layer in turn computes in FP16 and all others stay as they are; what that adds to the signal-to-noise ratio of
the network's outputs is measured, not estimated. A tensor between an FP16 and an INT8 layer stays in INT8, since
nothing says that the DLA stores it otherwise; only between two FP16 layers, and at the network's edges, is it FP16.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orinport.model.layer import LayerKind
from orinport.model.model import display_name
from orinport.precision.emulate import Arithmetic, Emulated, emulate
from orinport.precision.emulate_measure import Runner, outputs_of, restrict, snr_of, with_outputs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from orinport.model.layer import Layer
    from orinport.model.model import Model
    from orinport.precision.emulate import Typed
    from orinport.precision.emulate_weights import Weights
    from orinport.precision.scales import Scales

__all__ = ["Sensitivity", "candidates", "output_snr", "rank"]

Arrays = dict[str, "NDArray[Any]"]

_LEADERS = frozenset({LayerKind.CONVOLUTION, LayerKind.DECONVOLUTION, LayerKind.FULLY_CONNECTED, LayerKind.ELEMENTWISE})
_MOVING = frozenset({LayerKind.SHUFFLE, LayerKind.IDENTITY, LayerKind.SQUEEZE, LayerKind.UNSQUEEZE, LayerKind.CAST})


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """One layer in FP16, all others as they are."""

    layer: str
    layers: tuple[int, ...]
    """Index of that layer, and of a ReLU or Clip that is fused with it."""
    nodes: tuple[str, ...]
    snr_db: float
    """Lowest SNR of the network's outputs then."""
    gain_db: float
    """More than before."""
    extra_us: float | None = None
    """Predicted time that FP16 costs more than INT8; None where nothing predicts it."""


def candidates(layers: Sequence[Layer], arithmetic: Mapping[str, Arithmetic]) -> tuple[tuple[Layer, ...], ...]:
    """The layers that compute in INT8, each with the ReLU or Clip that is fused with it.

    Layers that only hand on values are left out: FP16 has nothing to gain there.
    """
    running = [layer for layer in layers if not layer.folds and layer.nodes]
    readers: dict[str, int] = {}
    for layer in running:
        for tensor in layer.runtime_inputs:
            readers[tensor.name] = readers.get(tensor.name, 0) + 1
    groups: dict[str, list[Layer]] = {}
    for layer in running:
        if _hands_on(layer) or not all(arithmetic.get(node) is Arithmetic.INT8 for node in layer.nodes):
            continue
        name = layer.runtime_inputs[0].name if layer.runtime_inputs else ""
        leader = groups.get(name) if readers.get(name) == 1 and _fuses(layer) else None
        if leader is not None and len(leader) == 1 and leader[0].kind in _LEADERS:
            leader.append(layer)
        else:
            groups[layer.outputs[0].name] = [layer]
    return tuple(tuple(group) for group in groups.values())


def _hands_on(layer: Layer) -> bool:
    return layer.kind in _MOVING or (layer.kind is LayerKind.POOLING and layer["type"] == "MAX")


def _fuses(layer: Layer) -> bool:
    return layer.kind is LayerKind.ACTIVATION and layer["type"] in ("RELU", "CLIP")


def rank(
    model: Model,
    layers: Sequence[Layer],
    arithmetic: Mapping[str, Arithmetic],
    scales: Scales,
    samples: Sequence[Mapping[str, NDArray[Any]]],
    *,
    typed: Typed | None = None,
    reference: Model | None = None,
    exact: Mapping[str, NDArray[Any]] | None = None,
    outputs: Sequence[str] = (),
    progress: Callable[[str], None] | None = None,
) -> tuple[Sensitivity, ...]:
    """The INT8 layers among `layers`, the one that gains most first.

    `reference` is the network in FP32 to compare with, by default `model`; `exact` has constants from before their
    rounding to INT8, by name, which a layer has again in FP16. `outputs` are the tensors that count, by default the
    network's floating-point outputs.
    """
    known: dict[Any, Weights] = {}
    names = list(outputs) or _float_outputs(emulate(model, arithmetic, scales, typed=typed, known=known), model)
    if not names:
        return ()
    plain = Runner(with_outputs(reference or model, set(names)))
    wanted = [plain.run(feeds) for feeds in samples]

    def reached(kinds: Mapping[str, Arithmetic], weights: Mapping[str, NDArray[Any]]) -> float:
        found = emulate(model, kinds, scales, typed=typed, exact=weights, known=known)
        return _snr(found, samples, wanted, names)

    before = reached(arithmetic, {})
    found = []
    tried = candidates(layers, arithmetic)
    for number, group in enumerate(tried):
        if progress is not None:
            progress(f"ranking: layer {number + 1} of {len(tried)}")
        nodes = tuple(node for layer in group for node in layer.nodes)
        changed = {**arithmetic, **dict.fromkeys(nodes, Arithmetic.FP16)}
        after = reached(changed, _read_by(model, nodes, exact or {}))
        gain = 0.0 if after == before else after - before
        found.append(Sensitivity(group[0].name, tuple(layer.index for layer in group), nodes, after, gain))
    return tuple(sorted(found, key=lambda each: -each.gain_db))


def _read_by(model: Model, nodes: Sequence[str], constants: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
    """Those of the constants that these nodes read."""
    read = (value.name or "" for node in model.graph if display_name(node) in nodes for value in node.inputs if value)
    return {name: constants[name] for name in read if name in constants}


def output_snr(
    model: Model,
    arithmetic: Mapping[str, Arithmetic],
    scales: Scales,
    samples: Sequence[Mapping[str, NDArray[Any]]],
) -> float:
    """Lowest SNR of the network's floating-point outputs, in dB."""
    found = emulate(model, arithmetic, scales)
    names = _float_outputs(found, model)
    plain = Runner(with_outputs(model, set(names)))
    return _snr(found, samples, [plain.run(feeds) for feeds in samples], names)


def _float_outputs(found: Emulated, model: Model) -> list[str]:
    given = {value.name for value in model.graph.inputs}
    return [
        value.name or "" for value in model.graph.outputs if value.name in found.tensors and value.name not in given
    ]


def _snr(
    found: Emulated, samples: Sequence[Mapping[str, NDArray[Any]]], wanted: Sequence[Arrays], names: Sequence[str]
) -> float:
    runner = Runner(restrict(found, names))
    had = []
    for feeds in samples:
        results = {**feeds, **runner.run(feeds)}
        had.append(dict(zip(names, outputs_of(found, results, names), strict=True)))
    return snr_of(wanted, had)
