"""What `predict` returns: time, bound, utilisation and bytes of every layer, and totals, each with its band."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orinport.model.layer import Layer
    from orinport.rules.finding import Finding
    from orinport.targets.target import Precision, Target

__all__ = ["Band", "Bound", "Bytes", "Engine", "LayerPrediction", "Prediction", "RegionPrediction"]


class Bound(str, Enum):
    """What limits a layer."""

    MAC = "mac"
    MEMORY = "memory"
    OVERHEAD = "overhead"
    UNKNOWN = "unknown"


class Engine(str, Enum):
    """The unit that runs a layer: DLA-SW, cuDLA layer statistics README, and the GPU."""

    CPIPE = "cpipe"
    RUBIK = "rubik"
    BDMA = "bdma"
    GPU = "gpu"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Band:
    """Lowest and highest time that the sources leave open, in us."""

    low: float
    high: float

    def __add__(self, other: Band) -> Band:
        return Band(self.low + other.low, self.high + other.high)


@dataclass(frozen=True, slots=True)
class Bytes:
    """Bytes that move, by kind.

    `resident` stay in the DLA's own SRAM and cost no DRAM traffic; `resident_written` of them are written there, the
    others read. `padding` is the part of `input` and `output` that only fills channels up to 32 (INT8) or 16 (FP16).
    """

    input: int = 0
    weights: int = 0
    operand: int = 0
    output: int = 0
    resident: int = 0
    padding: int = 0
    resident_written: int = 0

    @property
    def read(self) -> int:
        """Bytes read from DRAM."""
        return self.input + self.weights + self.operand

    @property
    def written(self) -> int:
        """Bytes written to DRAM."""
        return self.output

    @property
    def moved(self) -> int:
        """Bytes read and written."""
        return self.read + self.written


@dataclass(frozen=True, slots=True)
class LayerPrediction:
    """One layer. A layer that runs as part of another one (`fused_into`) takes no time of its own."""

    layer: Layer
    device: str
    engine: Engine
    us: float
    band: Band
    bound: Bound
    macs: int
    mac_utilisation: float
    bytes: Bytes
    atom: int = 0
    """Input channels that the engine multiplies at once; 0 where that does not apply."""
    fused_into: str = ""
    filled: int = 0
    """How many of `atom` a convolution fills: its channels, or the values of a kernel's row in an image."""
    reason: str = ""
    """Why the time is not known, or what it rests on."""

    @property
    def gbps(self) -> float:
        """DRAM traffic in GB/s (1e9 B/s)."""
        return self.bytes.moved / self.us / 1e3 if self.us else 0.0

    @property
    def intensity(self) -> float:
        """Arithmetic intensity: multiply-accumulates a byte of DRAM traffic."""
        return self.macs / self.bytes.moved if self.bytes.moved else 0.0


@dataclass(frozen=True, slots=True)
class RegionPrediction:
    """One DLA loadable or one run of GPU layers."""

    device: str
    us: float
    """Everything: launch, reformat and layers."""
    launch_us: float
    reformat_us: float
    reformat_bytes: int
    layers: tuple[LayerPrediction, ...]
    band: Band
    linear_us: float = 0.0
    """Part of the launch that linear inputs and outputs cause."""
    core: int = 0
    """The DLA core; 0 on the GPU."""
    start_us: float = 0.0
    """When it starts within one inference."""

    @property
    def unit(self) -> str:
        """`dla0`, `dla1` or `gpu`."""
        return f"dla{self.core}" if self.device == "dla" else self.device

    @property
    def busy_us(self) -> float:
        """Time of the layers alone, launches and reformats left out."""
        return self.us - self.launch_us - self.reformat_us

    @property
    def queued_us(self) -> float:
        """Time between tasks that are queued back to back: their layers', but on the DLA no less than a task of
        almost no work was measured to take so."""
        return max(self.busy_us, self.launch_us - self.linear_us) if self.device == "dla" else self.busy_us


@dataclass(frozen=True, slots=True)
class Prediction:
    """A whole network on one target, one inference of `batch` images."""

    model: str
    target: Target
    precision: Precision
    batch: int
    regions: tuple[RegionPrediction, ...]
    transitions: int
    findings: tuple[Finding, ...]
    clocks: Mapping[str, float] = field(default_factory=dict)
    """`dla_mhz`, `emc_mhz`, ... that the figures stand on."""
    roof: tuple[float, float] = (0.0, 0.0)
    """Peak of the DLA in GMAC/s and its DRAM bandwidth in GB/s at these clocks."""
    gpu_us: float | None = None
    """The whole network on the GPU, an order of magnitude; None if nobody asked."""
    shared_gbps: float = 0.0
    """What the DRAM gives both DLAs and the GPU together in GB/s; 0 if nothing is known of it."""
    split: bool = False
    """Every region is an engine of its own, so that those of different devices overlap."""
    notes: tuple[str, ...] = ()
    """What became of wishes, in sentences."""

    @property
    def layers(self) -> tuple[LayerPrediction, ...]:
        """All layers in order of execution."""
        return tuple(layer for region in self.regions for layer in region.layers)

    @property
    def total_us(self) -> float:
        """Latency of one inference: one region after the other, or as the regions of a split network overlap."""
        return max((region.start_us + region.us for region in self.regions), default=0.0)

    @property
    def work_us(self) -> float:
        """Time that all regions take together; more than `total_us` where they overlap."""
        return sum(region.us for region in self.regions)

    @property
    def band(self) -> Band:
        """Band of `total_us`; the bands of regions are taken to add up along the way that takes longest."""
        total = sum((region.band for region in self.regions), Band(0.0, 0.0))
        share = self.total_us / self.work_us if self.work_us else 0.0
        return Band(total.low * share, total.high * share)

    def device_us(self, device: str) -> float:
        """Time of one device between inferences that are queued back to back; see `queued_us`."""
        return sum(region.queued_us for region in self.regions if region.device == device)

    @property
    def dram_us(self) -> float:
        """Time that the DRAM, shared by all engines, needs for the traffic of one inference; 0 if unknown."""
        moved = sum(layer.bytes.moved for layer in self.layers) + sum(region.reformat_bytes for region in self.regions)
        return moved / self.shared_gbps / 1e3 if self.shared_gbps else 0.0

    def pace(self, cores: int) -> tuple[str, float]:
        """What sets the pace of inferences queued on `cores` DLAs, an instance of the network on each, and its us.

        `dla`, `gpu` (there is one) or `dram` (shared by all), whichever is busiest. The DLA's rates were measured
        with both DLAs at work, and a user who ran one alone got half of their sum (Deep-Learning-Accelerator-SW issue
        29): one DLA does not slow the other down below the limit of the DRAM.
        """
        busy = {"dla": self._dla_us(cores), "gpu": self.device_us("gpu"), "dram": self.dram_us}
        slowest = max(busy, key=lambda name: busy[name])
        return slowest, busy[slowest]

    def _dla_us(self, cores: int) -> float:
        """Time between inferences that the DLAs allow; a split network on both cores waits for the busier one."""
        if not self.split or cores == 1:
            return self.device_us("dla") / cores
        busy = {region.unit: 0.0 for region in self.regions if region.device == "dla"}
        for region in self.regions:
            if region.device == "dla":
                busy[region.unit] += region.queued_us
        return max(busy.values(), default=0.0)

    @property
    def fps_one_dla(self) -> float:
        """Images a second with inferences queued on one DLA and the GPU."""
        return self._images_a_second(1)

    @property
    def fps_two_dlas(self) -> float:
        """Images a second with an instance of the network on each of both DLAs, or with the network split over both."""
        return self._images_a_second(2)

    def _images_a_second(self, cores: int) -> float:
        _, us = self.pace(cores)
        return 1e6 * self.batch / us if us else 0.0

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one inference."""
        return sum(layer.macs for layer in self.layers)
