"""NVDLA v1's published performance spreadsheet, formula by formula.

nvdla/hw `perf/NVDLA_OpenSource_Performance.xlsx`: a layer takes the larger of its DRAM cycles and its MAC
cycles; pooling, scaling and element-wise layers ride along for free. Sizes are KiB and the sheet divides
them by GB/s directly (10 GB/s move 10 KiB a us); both are kept as they are. Each of its three networks has
its own variation of the formulas (`Sheet`). In the GoogLeNet sheet weights of 3x3 kernels are not grown by
16/9: with that factor its total could not be met.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import ceil

__all__ = ["Machine", "Sheet", "SheetLayer", "SheetTime", "sheet_time"]


class Sheet(str, Enum):
    """The sheet whose variation of the formulas is followed."""

    ALEXNET = "AlexNet"
    GOOGLENET = "GoogLeNet"
    RESNET50 = "ResNet50"


@dataclass(frozen=True, slots=True)
class Machine:
    """The sheet's inputs: MAC/cycle, clock in MHz, buffer in KiB, DRAM limit in GB/s, batch of FC layers."""

    macs: int = 2048
    mhz: float = 1000.0
    buffer_kib: float = 512.0
    dram_gbps: float = 10.0
    fc_batch: int = 16


@dataclass(frozen=True, slots=True)
class SheetLayer:
    """A convolution of a square map, with what is fused behind it."""

    channels: int
    size: int
    kernels: int
    kernel: int
    stride: int = 1
    padded: bool = True
    pool: tuple[int, int] | None = None
    """Window and stride of a fused pooling."""
    pooled_kernels: int | None = None
    """Output channels that the pooling applies to; None for all."""
    elementwise: bool = False
    fully_connected: bool = False
    stem: bool = False


@dataclass(frozen=True, slots=True)
class SheetTime:
    """DRAM traffic in KiB, and cycles."""

    dram_kib: float
    dram_cycles: float
    mac_cycles: float

    @property
    def cycles(self) -> float:
        """The layer's cycles: the larger of both."""
        return max(self.dram_cycles, self.mac_cycles)

    @property
    def bound(self) -> str:
        """`memory` or `mac`."""
        return "memory" if self.dram_cycles > self.mac_cycles else "mac"


def sheet_time(layer: SheetLayer, sheet: Sheet, machine: Machine | None = None) -> SheetTime:
    """One layer without on-chip SRAM."""
    machine = machine or Machine()
    stride, kernel = layer.stride, layer.kernel
    channels = _up(layer.channels * stride * stride, 16)
    steps = ceil(layer.size / stride)
    outputs = steps if layer.padded else ceil((layer.size - kernel) / stride) + 1
    rows = kernel if sheet is Sheet.RESNET50 and not layer.stem else kernel + 1
    read = channels * steps * steps / 1024
    least_rows = channels * min(rows, steps) * steps / 1024
    written = _written(layer, outputs)
    taps = channels * ceil(kernel / stride) ** 2
    growth = 16 / 9 if kernel == 3 and sheet is not Sheet.GOOGLENET else 1.0
    weights = taps * layer.kernels / 1024 * growth
    least_weights = taps * 32 / 1024 * growth
    if least_weights >= machine.buffer_kib:
        least_weights = machine.buffer_kib / 2
    moved = _traffic(layer, sheet, machine, read, least_rows, written, weights, least_weights)
    return SheetTime(moved, ceil(moved / machine.dram_gbps * machine.mhz), _mac_cycles(layer, sheet, machine))


def _written(layer: SheetLayer, outputs: int) -> float:
    """Output in KiB, after a fused pooling of all or some channels."""
    if layer.pool is None:
        return outputs**2 * _up(layer.kernels, 16) / 1024
    window, step = layer.pool
    pooled = ceil((outputs - window) / step) + 1
    if layer.pooled_kernels is None:
        return pooled**2 * _up(layer.kernels, 16) / 1024
    rest = layer.kernels - layer.pooled_kernels
    return (pooled**2 * _up(layer.pooled_kernels, 16) + outputs**2 * _up(rest, 16)) / 1024


def _traffic(
    layer: SheetLayer,
    sheet: Sheet,
    machine: Machine,
    read: float,
    least_rows: float,
    written: float,
    weights: float,
    least_weights: float,
) -> float:
    if sheet is Sheet.ALEXNET:
        return read + written + weights / (machine.fc_batch if layer.fully_connected else 1)
    if sheet is Sheet.GOOGLENET:
        keep_input = read < least_weights
    else:
        keep_input = least_rows < least_weights if layer.stem else read < weights
    if keep_input:
        room = machine.buffer_kib - least_weights
        passes = ceil(read / room) if read > room else 1
        moved = passes * weights + read + written
    else:
        room = machine.buffer_kib - least_rows
        passes = ceil(weights / room) if weights > room else 1
        moved = passes * read + weights + written
    return moved + (written if layer.elementwise else 0.0)


def _mac_cycles(layer: SheetLayer, sheet: Sheet, machine: Machine) -> float:
    """Cycles of the MAC array; 3x3 kernels run as Winograd, 2.25 times faster."""
    stride, kernel = layer.stride, layer.kernel
    channels = _up(layer.channels * stride * stride, 16)
    size = layer.size if layer.padded else layer.size - kernel + 1
    batch = machine.fc_batch if layer.fully_connected else 1
    kernels = _up(layer.kernels * batch, 128 if sheet is Sheet.RESNET50 else 16)
    work = channels * ceil(size / stride) ** 2 * kernels * kernel**2 / stride**2
    return work / machine.macs / (2.25 if kernel == 3 else 1.0) / batch


def _up(value: int, multiple: int) -> int:
    return ceil(value / multiple) * multiple
