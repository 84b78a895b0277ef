"""Hardware operations: what one DLA region's layers become, after the fusions that the hardware offers.

A convolution takes the point-wise layers behind it along (bias, scale, activation, the sum of a residual
block): they run in the same pass, as the names in cuDLA's layer statistics show ("Conv_226 +
BatchNormalization_227+Add_228+Relu_229"). Point-wise layers that follow none form a pass of their own.
A tensor that such a pass reads twice (x * sigmoid(x)) is fetched once: with two fetches YOLOv5s would be predicted
19 % slower than NVIDIA measured it, with one 2 %. Pooling is a pass of its own in those statistics. A concatenation
or slice along channels writes or reads at an offset when the channels fill whole atoms (nvdla/sw: such nodes emit no
operation), otherwise it copies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orinport.model.layer import Layer, LayerKind, Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Operation", "operations"]

CONVOLUTIONS = frozenset({LayerKind.CONVOLUTION, LayerKind.DECONVOLUTION, LayerKind.FULLY_CONNECTED})
POINTWISE = frozenset(
    {LayerKind.SCALE, LayerKind.ACTIVATION, LayerKind.PARAMETRIC_RELU, LayerKind.ELEMENTWISE, LayerKind.UNARY}
)


@dataclass(frozen=True, slots=True)
class Operation:
    """One pass of the hardware over its tensors: the first layer leads, the others ride along."""

    layers: tuple[Layer, ...]
    input: Tensor | None
    """What the leading layer reads."""
    operands: tuple[Tensor, ...]
    """Further runtime tensors: the other side of sums and products."""
    output: Tensor | None

    @property
    def leader(self) -> Layer:
        """The layer that decides what the operation costs."""
        return self.layers[0]


class _Open:
    """An operation that may still take layers along."""

    def __init__(self, layer: Layer) -> None:
        self.layers = [layer]
        runtime = layer.runtime_inputs
        self.input = runtime[0] if runtime else None
        self.operands = list(runtime[1:])
        self.output = layer.outputs[0] if layer.outputs else None

    def take(self, layer: Layer, along: str) -> None:
        known = {along, *(t.name for t in self.operands)}
        if self.layers[0].kind not in CONVOLUTIONS and self.input is not None:
            known.add(self.input.name)
        self.layers.append(layer)
        self.operands += [t for t in layer.runtime_inputs if t.name not in known]
        self.output = layer.outputs[0]

    def close(self) -> Operation:
        return Operation(tuple(self.layers), self.input, tuple(self.operands), self.output)


def operations(layers: Sequence[Layer], kept: Iterable[str]) -> tuple[Operation, ...]:
    """The operations of one region.

    `kept` names tensors that leave the region: they have to be written, so nothing is fused behind them
    that would replace them.
    """
    kept = frozenset(kept)
    readers: dict[str, int] = {}
    for layer in layers:
        for tensor in layer.runtime_inputs:
            readers[tensor.name] = readers.get(tensor.name, 0) + 1
    found: list[_Open] = []
    ends: dict[str, int] = {}
    for layer in layers:
        if layer.kind is LayerKind.CONSTANT:
            continue
        hosts = [
            (ends[t.name], t.name)
            for t in layer.runtime_inputs
            if t.name in ends and readers[t.name] == 1 and t.name not in kept
        ]
        if layer.kind in POINTWISE and hosts and len(layer.outputs) == 1:
            number, name = max(hosts)
            found[number].take(layer, name)
            ends[layer.outputs[0].name] = number
            continue
        found.append(_Open(layer))
        if len(layer.outputs) == 1 and (layer.kind in CONVOLUTIONS or layer.kind in POINTWISE):
            ends[layer.outputs[0].name] = len(found) - 1
    return tuple(operation.close() for operation in found)
