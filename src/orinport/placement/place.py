"""`place`: verdicts to regions, one for each DLA loadable and each run of GPU layers.

Layers that are `unknown` are placed on the GPU: that is the safe assumption, and what TensorRT does with
GPU fallback. All layers of one loadable share one batch size, so layers of another batch open a region of
their own (TensorRT documentation, "Working with DLA", 10.16 to 11.4.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orinport.model.layer import Layer, Tensor
from orinport.model.partition import group_positions, sources_of
from orinport.placement.formats import edge_format
from orinport.placement.placement import Placement, Region
from orinport.rules.finding import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orinport.placement.cores import Assignment
    from orinport.targets.target import Precision, Target

__all__ = ["all_on_gpu", "place"]


def place(
    layers: Sequence[Layer],
    verdicts: Mapping[int, Verdict],
    *,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    target: Target,
    precision: Precision,
    standalone: bool = False,
    assignment: Assignment | None = None,
) -> Placement:
    """Place `layers` (in topological order) by their verdicts, given by `Layer.index`.

    `inputs` and `outputs` are the network's, in order. `assignment` says which core runs what the DLA takes and where
    regions end; every region is an engine of its own then. Without it one engine runs everything, with its DLA layers
    on one core.
    """
    unit = {} if assignment is None else assignment.device
    uses = _uses(layers, verdicts)
    network_outputs = {tensor.name for tensor in outputs}
    regions = tuple(
        _region(
            uses.device[group[0].index],
            group,
            uses.readers,
            network_outputs,
            int(unit.get(group[0].index) == "dla1"),
        )
        for group in _groups(layers, verdicts, assignment)
    )
    all_dla = bool(regions) and all(region.device == "dla" for region in regions)
    return Placement(
        regions=regions,
        inputs=tuple(
            edge_format(
                t,
                uses.readers.get(t.name, ()),
                on_dla=all_dla or uses.on_dla(t),
                is_input=True,
                target=target,
                precision=precision,
                standalone=standalone,
            )
            for t in inputs
        ),
        outputs=tuple(
            edge_format(t, (), on_dla=all_dla or uses.on_dla(t), is_input=False, target=target, precision=precision)
            for t in outputs
        ),
        transitions=uses.transitions(),
        split=assignment is not None,
    )


@dataclass(frozen=True, slots=True)
class _Uses:
    """Who makes and reads each tensor, by name; and the device of each layer, by index. Folded layers do neither."""

    device: Mapping[int, str]
    readers: Mapping[str, list[Layer]]
    makers: Mapping[str, Layer]

    def on_dla(self, tensor: Tensor) -> bool:
        """The tensor is made and read by the DLA alone."""
        maker = self.makers.get(tensor.name)
        users = [*([maker] if maker else []), *self.readers.get(tensor.name, ())]
        return bool(users) and all(self.device[user.index] == "dla" for user in users)

    def transitions(self) -> int:
        """Tensors that another device reads than the one that makes them."""
        return sum(
            any(self.device[reader.index] != self.device[maker.index] for reader in self.readers.get(name, ()))
            for name, maker in self.makers.items()
        )


def _uses(layers: Sequence[Layer], verdicts: Mapping[int, Verdict]) -> _Uses:
    readers: dict[str, list[Layer]] = {}
    makers: dict[str, Layer] = {}
    for layer in layers:
        if layer.folds:
            continue
        for tensor in layer.inputs:
            readers.setdefault(tensor.name, []).append(layer)
        for tensor in layer.outputs:
            makers[tensor.name] = layer
    device = {layer.index: "dla" if verdicts[layer.index] is Verdict.DLA else "gpu" for layer in layers}
    return _Uses(device, readers, makers)


def _groups(
    layers: Sequence[Layer], verdicts: Mapping[int, Verdict], assignment: Assignment | None
) -> list[list[Layer]]:
    """The layers of each region: of one device, and on the DLA of one batch size."""
    unit = {} if assignment is None else assignment.device

    def colour(layer: Layer) -> tuple[str, int | None] | None:
        verdict = verdicts[layer.index]
        if verdict is Verdict.BLOCKED or layer.folds:
            return None
        if verdict is Verdict.DLA:
            return unit.get(layer.index, "dla"), layer.outputs[0].batch if layer.outputs else None
        return "gpu", None

    ends = frozenset() if assignment is None else assignment.ends
    positions = group_positions(
        sources_of(layers),
        [colour(layer) for layer in layers],
        {position for position, layer in enumerate(layers) if layer.index in ends},
    )
    return [[layers[position] for position in group] for group in positions]


def _region(
    device: str, layers: Sequence[Layer], readers: Mapping[str, list[Layer]], network_outputs: set[str], core: int
) -> Region:
    inside = {layer.index for layer in layers}
    made = {tensor.name for layer in layers for tensor in layer.outputs}
    inputs = {t.name: t for layer in layers for t in layer.runtime_inputs if t.name not in made}
    outputs = {
        t.name: t
        for layer in layers
        for t in layer.outputs
        if t.name in network_outputs or any(reader.index not in inside for reader in readers.get(t.name, ()))
    }
    return Region(device, tuple(layers), tuple(inputs.values()), tuple(outputs.values()), core)


def all_on_gpu(placement: Placement) -> Placement:
    """The same network as one GPU region, its edges linear: what a comparison with the GPU starts from."""
    layers = sorted((layer for region in placement.regions for layer in region.layers), key=lambda layer: layer.index)
    made = {tensor.name for layer in layers for tensor in layer.outputs}
    read = {tensor.name for layer in layers for tensor in layer.inputs}
    inputs = {t.name: t for layer in layers for t in layer.runtime_inputs if t.name not in made}
    names = {edge.name for edge in placement.outputs}
    outputs = {t.name: t for layer in layers for t in layer.outputs if t.name in names or t.name not in read}
    region = Region("gpu", tuple(layers), tuple(inputs.values()), tuple(outputs.values()))
    return Placement((region,) if layers else (), placement.inputs, placement.outputs, 0)
