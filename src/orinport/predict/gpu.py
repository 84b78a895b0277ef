"""A coarse roofline of the Orin GPU, so that DLA and GPU can be compared in kind, not in percent.

    time = launch + max(MACs / (efficiency * SMs * MAC/cycle * f), bytes / (efficiency * bandwidth))

Point-wise layers behind a product are taken to be fused into it, as TensorRT does.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.predict.macs import layer_macs
from orinport.predict.operations import CONVOLUTIONS
from orinport.predict.prediction import Band, Bound, Bytes, Engine
from orinport.targets.target import Precision

if TYPE_CHECKING:
    from orinport.model.layer import Layer
    from orinport.predict.constants import Constants
    from orinport.predict.operations import Operation

__all__ = ["GpuClocks", "GpuTime", "gpu_time"]

_VIEWS = frozenset({LayerKind.SHUFFLE, LayerKind.IDENTITY, LayerKind.SQUEEZE, LayerKind.UNSQUEEZE})
_OPAQUE = frozenset(
    {LayerKind.PLUGIN, LayerKind.UNSUPPORTED, LayerKind.TRIP_LIMIT, LayerKind.RECURRENCE, LayerKind.NMS}
)


@dataclass(frozen=True, slots=True)
class GpuClocks:
    """What the roofline stands on: GPU clock in MHz, streaming multiprocessors, DRAM bandwidth in GB/s."""

    gpu_mhz: float
    sms: float
    mac_per_cycle_per_sm: float
    dram_gbps: float


@dataclass(frozen=True, slots=True)
class GpuTime:
    """What one fused operation costs on the GPU."""

    us: float
    band: Band
    bound: Bound
    engine: Engine
    macs: int
    bytes: Bytes
    peak_macs_per_us: float
    reason: str = ""


def gpu_time(operation: Operation, constants: Constants, clocks: GpuClocks, precision: Precision) -> GpuTime:
    """Predict one operation; a plugin or a loop gives bound `unknown`."""
    element = 1 if precision is Precision.INT8 and operation.leader.kind in CONVOLUTIONS else 2
    macs = sum(layer_macs(layer) for layer in operation.layers)
    sizes = [prod(t.shape) if t.shape is not None else 0 for t in (operation.input, operation.output) if t is not None]
    moved = Bytes(
        input=sizes[0] * element if sizes else 0,
        weights=sum(_weights(layer) for layer in operation.layers) * element,
        operand=sum(prod(t.shape or (0,)) for t in operation.operands) * element,
        output=sizes[-1] * element if len(sizes) > 1 else 0,
    )
    peak = clocks.sms * clocks.mac_per_cycle_per_sm * clocks.gpu_mhz
    compute = macs / (constants["compute_efficiency"] * peak)
    memory = moved.moved / (constants["memory_efficiency"] * clocks.dram_gbps * 1e3)
    launch = constants["launch_us"]
    if _is_view(operation.leader):
        launch = memory = 0.0
    us = launch + max(compute, memory)
    factor = constants["band_factor"]
    if operation.leader.kind in _OPAQUE:
        reason = f"what {operation.leader.name} does is not known"
        return GpuTime(us, Band(0.0, us * factor * factor), Bound.UNKNOWN, Engine.GPU, macs, moved, peak, reason)
    worked = Bound.MAC if compute >= memory else Bound.MEMORY
    bound = Bound.OVERHEAD if launch >= max(compute, memory) else worked
    return GpuTime(us, Band(us / factor, us * factor), bound, Engine.GPU, macs, moved, peak)


def _weights(layer: Layer) -> int:
    """Build-time constants that the layer reads: its own weights, and constant operands."""
    own = int(layer.attributes.get("weight_values") or 0)
    return own + sum(prod(tensor.shape or (0,)) for tensor in layer.inputs if tensor.constant)


def _is_view(layer: Layer) -> bool:
    """A reshape in linear memory moves nothing; a transpose does."""
    if layer.kind not in _VIEWS:
        return False
    return not any(layer.attributes.get(key) for key in ("first_transpose", "second_transpose"))
