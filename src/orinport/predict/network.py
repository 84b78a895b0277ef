"""`predict_network`: time, bound, utilisation and bytes of every layer of a placed network."""

from __future__ import annotations

from dataclasses import replace
from math import prod, sqrt
from typing import TYPE_CHECKING

from orinport.errors import OrinportError
from orinport.model.layer import LayerKind
from orinport.predict.advise import advise
from orinport.predict.batch import batch_of
from orinport.predict.constants import constants_of
from orinport.predict.dla import Clocks, OperationTime, Surroundings, bandwidth, operation_time
from orinport.predict.gpu import GpuClocks, GpuTime, gpu_time
from orinport.predict.operations import Operation, operations
from orinport.predict.prediction import Band, Bound, Bytes, Engine, LayerPrediction, Prediction, RegionPrediction
from orinport.targets.target import Platform, Precision

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orinport.model.layer import Tensor
    from orinport.placement.placement import IOFormat, Placement, Region
    from orinport.predict.constants import Constants
    from orinport.targets.target import Target

__all__ = ["predict_network"]

_LINEAR = frozenset({"chw", "dla_linear"})


def predict_network(
    model: str,
    placement: Placement,
    target: Target,
    precision: Precision,
    *,
    sparse: bool = False,
    linear_io: bool = False,
    gpu_us: float | None = None,
    dla: Constants | None = None,
    gpu: Constants | None = None,
) -> Prediction:
    """Predict one inference of a placed network.

    `sparse`: weights have the 2:4 pattern. `linear_io`: the network's inputs and outputs are FP32 and
    linear, as trtexec leaves them by default, instead of the placement's formats. `gpu_us`: the same network
    on the GPU, to be shown beside it. Raises OrinportError for
    boards whose clocks or DLA no source describes.
    """
    dla = dla or constants_of("orin-dla", target)
    gpu = gpu or constants_of("orin-gpu", target)
    clocks, gpu_clocks = _clocks(target, dla), _gpu_clocks(target, precision, gpu)
    formats = {f.name: f for f in (*placement.inputs, *placement.outputs)}
    edges = frozenset(formats)
    crossing = _crossing(placement)
    halves = _halves(placement, target)
    regions = _timed(
        placement,
        [
            _dla_region(region, formats, edges, crossing[number], halves, dla, clocks, precision, sparse, linear_io)
            if region.device == "dla"
            else _gpu_region(region, gpu, gpu_clocks, precision)
            for number, region in enumerate(placement.regions)
        ],
    )
    prediction = Prediction(
        model,
        target,
        precision,
        batch_of(placement),
        regions,
        placement.transitions,
        (),
        {
            "dla_mhz": clocks.dla_mhz,
            "emc_mhz": clocks.emc_mhz,
            "falcon_mhz": clocks.falcon_mhz,
            "gpu_mhz": gpu_clocks.gpu_mhz,
        },
        (_peak(precision, dla, clocks) / 1e3, bandwidth(dla, clocks) / 1e3),
        gpu_us,
        gpu_clocks.dram_gbps * gpu["memory_efficiency"],
        placement.split,
    )
    return replace(prediction, findings=advise(prediction))


def _halves(placement: Placement, target: Target) -> frozenset[str]:
    """What passes between engines in FP16 even if the network is in INT8: from TensorRT 11 on, what has that type."""
    if not target.stack.strongly_typed:
        return frozenset()
    found = {edge.name for edge in (*placement.inputs, *placement.outputs)}
    if placement.split:
        found |= {tensor.name for region in placement.regions for tensor in (*region.inputs, *region.outputs)}
    return frozenset(found)


def _crossing(placement: Placement) -> list[list[Tensor]]:
    """For every DLA region the tensors that it takes from the GPU or gives to it; each tensor counts once."""
    on_gpu = {
        tensor.name
        for region in placement.regions
        if region.device == "gpu"
        for tensor in (*region.inputs, *region.outputs)
    }
    inputs = {edge.name for edge in placement.inputs}
    counted: set[str] = set()
    crossing: list[list[Tensor]] = []
    for region in placement.regions:
        found = {}
        if region.device == "dla":
            found = {
                t.name: t
                for t in (*region.inputs, *region.outputs)
                if t.name in on_gpu and t.name not in inputs and t.name not in counted
            }
        counted |= found.keys()
        crossing.append(list(found.values()))
    return crossing


def _timed(placement: Placement, regions: list[RegionPrediction]) -> tuple[RegionPrediction, ...]:
    """The regions with their starts: one after the other, or when device and tensors are there if they are engines."""
    free: dict[str, float] = {}
    made: dict[str, float] = {}
    timed = []
    for region, prediction in zip(placement.regions, regions, strict=True):
        unit = region.unit if placement.split else "engine"
        start = max([free.get(unit, 0.0), *(made.get(tensor.name, 0.0) for tensor in region.inputs)])
        timed.append(replace(prediction, core=region.core, start_us=start))
        free[unit] = start + prediction.us
        made |= {tensor.name: free[unit] for tensor in region.outputs}
    return tuple(timed)


def _figure(target: Target, name: str, default: float | None = None) -> float:
    figures = {**target.hardware.figures, **target.power_mode.figures}
    if name in figures:
        return figures[name].value
    if default is None:
        raise OrinportError(
            f"No source states {name} of {target.hardware.name} in power mode {target.power_mode.name}.",
            "Choose another power mode; orinport targets shows what is known.",
        )
    return default


def _clocks(target: Target, dla: Constants) -> Clocks:
    if target.platform is not Platform.ORIN:
        raise OrinportError(
            f"Times of the DLA of {target.hardware.title} cannot be predicted: no public measurement covers it.",
            "Choose an Orin; orinport targets lists them.",
        )
    reference = dla["falcon_reference_mhz"]
    dla_mhz = _figure(target, "dla_mhz")
    return Clocks(
        dla_mhz,
        _figure(target, "emc_mhz"),
        _figure(target, "falcon_mhz", reference * min(1.0, dla_mhz / dla["dla_reference_mhz"])),
        int(_figure(target, "dla_sram_kib") * 1024),
    )


def _gpu_clocks(target: Target, precision: Precision, gpu: Constants) -> GpuClocks:
    rate = "gpu_int8_mac_per_cycle_per_sm" if precision is Precision.INT8 else "gpu_fp16_mac_per_cycle_per_sm"
    return GpuClocks(
        _figure(target, "gpu_mhz"),
        _figure(target, "gpu_sms"),
        _figure(target, rate),
        _figure(target, "dram_gbps") * _figure(target, "emc_mhz") / gpu["emc_reference_mhz"],
    )


def _dla_region(
    region: Region,
    formats: dict[str, IOFormat],
    edges: frozenset[str],
    crossing: list[Tensor],
    halves: frozenset[str],
    dla: Constants,
    clocks: Clocks,
    precision: Precision,
    sparse: bool,
    linear_io: bool,
) -> RegionPrediction:
    outside = frozenset(t.name for t in (*region.inputs, *region.outputs))
    images = frozenset(t.name for t in region.inputs if t.name in formats and formats[t.name].format == "dla_hwc4")
    around = Surroundings(dla, clocks, precision, sparse, images, outside, outside & halves)
    peak = _peak(precision, dla, clocks)
    atom = int(dla["atom_channels" if precision is Precision.INT8 else "rubik_atom"])
    layers: list[LayerPrediction] = []
    for operation in operations(region.layers, (t.name for t in region.outputs)):
        layers += _share(operation, operation_time(operation, around), "dla", peak, atom)
    linear = [
        t
        for t in (*region.inputs, *region.outputs)
        if t.name in edges and (linear_io or formats[t.name].format in _LINEAR)
    ]
    extra = _linear_us(linear, region, dla, precision)
    moved = sum(prod(t.shape or ()) * (4 + around.element_of(t)) for t in linear)
    moved += sum(prod(t.shape or ()) * 2 * around.element_of(t) for t in crossing)
    rate = dla[f"reformat_gbps_{precision.value}"] * 1e3 * clocks.emc_mhz / dla["emc_reference_mhz"]
    return _region("dla", layers, dla["launch_us"] + extra, moved / rate, moved, dla, extra)


def _linear_us(linear: list[Tensor], region: Region, dla: Constants, precision: Precision) -> float:
    """What linear edges add to the launch, whatever their size."""
    if not linear:
        return 0.0
    extra = dla[f"linear_io_us_{precision.value}"]
    if any(layer.kind is LayerKind.FULLY_CONNECTED for layer in region.layers):
        extra += dla[f"rank2_shuffle_us_{precision.value}"]
    return extra


def _peak(precision: Precision, dla: Constants, clocks: Clocks) -> float:
    """Multiply-accumulates a us at 100 % utilisation, of the engine that convolves in this precision."""
    if precision is Precision.INT8:
        return dla["atom_channels"] * dla["atom_kernels"] * dla["cpipes"] * clocks.dla_mhz
    return dla["rubik_atom"] ** 2 * dla["rubik_fp16_ghz"] * 1e3 * clocks.dla_mhz / dla["dla_reference_mhz"]


def _gpu_region(region: Region, gpu: Constants, clocks: GpuClocks, precision: Precision) -> RegionPrediction:
    layers: list[LayerPrediction] = []
    for operation in operations(region.layers, (t.name for t in region.outputs)):
        time = gpu_time(operation, gpu, clocks, precision)
        layers += _share(operation, time, "gpu", time.peak_macs_per_us)
    return _region("gpu", layers, 0.0, 0.0, 0, gpu)


def _share(
    operation: Operation, time: OperationTime | GpuTime, device: str, peak: float, atom: int = 0
) -> Iterable[LayerPrediction]:
    """The leading layer takes the operation's time; the others say what they ride along with."""
    utilisation = time.macs / (peak * time.us) if time.us else 0.0
    leader = operation.leader
    yield LayerPrediction(
        leader,
        device,
        time.engine,
        time.us,
        time.band,
        time.bound,
        time.macs,
        utilisation,
        time.bytes,
        atom,
        reason=time.reason,
        filled=time.filled if isinstance(time, OperationTime) else 0,
    )
    for layer in operation.layers[1:]:
        yield LayerPrediction(
            layer, device, time.engine, 0.0, Band(0.0, 0.0), Bound.OVERHEAD, 0, 0.0, Bytes(), 0, leader.name
        )


def _region(
    device: str,
    layers: list[LayerPrediction],
    launch: float,
    reformat: float,
    moved: int,
    constants: Constants,
    linear_us: float = 0.0,
) -> RegionPrediction:
    figure = constants.figures["launch_us"]
    scale_low, scale_high = figure.low / figure.value, figure.high / figure.value
    spread = constants.figures["band_memory"].value if "band_memory" in constants.figures else 0.0
    fixed = Band(launch * scale_low + reformat * (1 - spread), launch * scale_high + reformat * (1 + spread))
    us = launch + reformat + sum(layer.us for layer in layers)
    band = fixed + _layers_band(layers, constants)
    return RegionPrediction(device, us, launch, reformat, moved, tuple(layers), band, linear_us)


def _layers_band(layers: list[LayerPrediction], constants: Constants) -> Band:
    """Band of the layers' sum.

    On the DLA the errors of layers are taken as independent and add in quadrature, but never to less than the error
    of whole networks. What has no model adds its whole band, and so do all layers of the GPU.
    """
    known = [each for each in layers if each.device == "dla" and each.bound is not Bound.UNKNOWN]
    band = sum((each.band for each in layers if each.device != "dla" or each.bound is Bound.UNKNOWN), Band(0.0, 0.0))
    if not known:
        return band
    us = sum(each.us for each in known)
    fp16 = sum(each.us for each in known if each.engine is Engine.RUBIK and each.macs)
    least = constants["band_network"] * (us - fp16) + constants["band_fp16"] * fp16
    low = max(least, sqrt(sum((each.us - each.band.low) ** 2 for each in known)))
    high = max(least, sqrt(sum((each.band.high - each.us) ** 2 for each in known)))
    return band + Band(max(0.0, us - low), us + high)
