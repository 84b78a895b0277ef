"""Time of one hardware operation on the Orin DLA.

    time = max(cycles / (efficiency * f), bytes / bandwidth) + gap
    1 / bandwidth = 1 / (rate * EMC / reference) + 1 / (port * f)

INT8 convolution runs on two pipelines of 64 channels by 64 kernels; bytes follow from the buffer
(`buffer.py`), from channels padded to 32 (INT8) or 16 (FP16), and from tensors of at most the size of the
DLA's own SRAM staying there. A byte crosses the DLA's memory port, which runs at the DLA's clock, and then the
DRAM, which runs at its own: the two times add up. FP16 convolution runs on Rubik at 16 channels by 16 kernels
a cycle. The sources and the fit are in docs/how-to/predict.md; no Orin was measured by us.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, prod
from typing import TYPE_CHECKING

from orinport.model.layer import LayerKind
from orinport.predict.buffer import BufferSize, buffer_use
from orinport.predict.operations import CONVOLUTIONS, POINTWISE
from orinport.predict.prediction import Band, Bound, Bytes, Engine
from orinport.targets.target import Precision

if TYPE_CHECKING:
    from orinport.model.layer import Layer, Tensor
    from orinport.predict.constants import Constants
    from orinport.predict.operations import Operation

STREAMED = POINTWISE | {LayerKind.POOLING, LayerKind.REDUCE, LayerKind.LRN}

__all__ = ["Clocks", "OperationTime", "Surroundings", "operation_time"]


@dataclass(frozen=True, slots=True)
class Clocks:
    """Clocks in MHz and the DLA's SRAM in bytes."""

    dla_mhz: float
    emc_mhz: float
    falcon_mhz: float
    sram_bytes: int


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a prediction of a region holds fixed: constants, clocks, precision, sparsity, edge formats."""

    constants: Constants
    clocks: Clocks
    precision: Precision
    sparse: bool
    image_inputs: frozenset[str]
    """Network inputs that come as images of four channels (`dla_hwc4`)."""
    edges: frozenset[str]
    """Tensors that enter or leave the region: they pass through DRAM whatever their size."""
    halves: frozenset[str] = frozenset()
    """Tensors in FP16, whatever the precision."""

    @property
    def element(self) -> int:
        """Bytes an element."""
        return 1 if self.precision is Precision.INT8 else 2

    def element_of(self, tensor: Tensor) -> int:
        """Bytes an element of this tensor."""
        return 2 if tensor.name in self.halves else self.element

    @property
    def atom(self) -> int:
        """Channels are padded to a multiple of this: 32 bytes."""
        return 32 // self.element


@dataclass(frozen=True, slots=True)
class OperationTime:
    """What one operation costs."""

    us: float
    band: Band
    bound: Bound
    engine: Engine
    macs: int
    cycles: float
    bytes: Bytes
    reason: str = ""
    filled: int = 0
    """Values of an atomic operation that a convolution fills; 0 where that does not apply."""


def operation_time(operation: Operation, around: Surroundings) -> OperationTime:
    """Predict one operation. A kind that no source times gives bound `unknown` with a wide band."""
    leader = operation.leader
    if (
        operation.input is None
        or operation.output is None
        or operation.input.shape is None
        or operation.output.shape is None
    ):
        return _unknown(operation, around, "a shape is not known")
    if leader.kind in CONVOLUTIONS:
        return _convolution(operation, around)
    if leader.kind in STREAMED:
        return _streamed(operation, around, Engine.CPIPE)
    if leader.kind in (LayerKind.CONCATENATION, LayerKind.SLICE) and _whole_atoms(leader, around.atom):
        return OperationTime(0.0, Band(0.0, _copy_us(operation, around)), Bound.OVERHEAD, Engine.NONE, 0, 0.0, Bytes())
    if leader.kind in (LayerKind.CONCATENATION, LayerKind.SLICE, LayerKind.SHUFFLE):
        return _streamed(operation, around, Engine.BDMA, "copy_gbps")
    if leader.kind is LayerKind.RESIZE:
        return _streamed(operation, around, Engine.RUBIK, "copy_gbps")
    return _unknown(operation, around, f"no measurement of {leader.kind.value} on the DLA is public")


def gap_us(around: Surroundings) -> float:
    """Time between two operations, in us."""
    constants = around.constants
    return (
        constants["gap_us"] + constants["falcon_gap_us"] * constants["falcon_reference_mhz"] / around.clocks.falcon_mhz
    )


def bandwidth(constants: Constants, clocks: Clocks, key: str = "dram_gbps") -> float:
    """Bytes a us that one DLA moves at these clocks: `key` at the memory's clock and the port at the DLA's, in turn."""
    dram = constants[key] * 1e3 * clocks.emc_mhz / constants["emc_reference_mhz"]
    return 1 / (1 / dram + 1 / (constants["port_bytes_per_cycle"] * clocks.dla_mhz))


def padded_bytes(tensor: Tensor, around: Surroundings) -> int:
    """Bytes of a tensor in the DLA's own format, all images."""
    assert tensor.shape is not None
    channels, height, width = tensor.chw or (1, 1, 1)
    if tensor.name in around.image_inputs:
        stored = int(around.constants["image_channels"])
    else:
        atom = 32 // around.element_of(tensor)
        stored = ceil(channels / atom) * atom
    return (tensor.batch or 1) * stored * height * width * around.element_of(tensor)


def plain_bytes(tensor: Tensor, around: Surroundings) -> int:
    """Bytes of a tensor without padding."""
    return prod(tensor.shape or ()) * around.element_of(tensor)


def _stays(tensor: Tensor, around: Surroundings) -> bool:
    """The tensor never leaves the DLA's SRAM."""
    return tensor.name not in around.edges and padded_bytes(tensor, around) <= around.clocks.sram_bytes


@dataclass(frozen=True, slots=True)
class _Work:
    """A convolution's loop bounds. `rows` and `width` are the positions of one image that products are formed at."""

    images: int
    channels: int
    kernels: int
    groups: int
    kernel_rows: int
    kernel_width: int
    rows: int
    width: int

    @property
    def taps(self) -> int:
        return self.kernel_rows * self.kernel_width

    @property
    def macs(self) -> int:
        return self.images * self.rows * self.width * self.taps * (self.channels // self.groups) * self.kernels


def _work(layer: Layer) -> _Work:
    source, result = layer.inputs[0], layer.outputs[0]
    channels, rows, width = source.chw or (1, 1, 1)
    kernels, output_rows, output_width = result.chw or (1, 1, 1)
    kernel = tuple(layer.attributes.get("kernel", (1, 1)))[-2:]
    if layer.kind is not LayerKind.DECONVOLUTION:
        rows, width = output_rows, output_width
    groups = int(layer.attributes.get("groups", 1))
    return _Work(source.batch or 1, channels, kernels, groups, kernel[0], kernel[1], rows, width)


def _convolution(operation: Operation, around: Surroundings) -> OperationTime:
    layer, constants, source = operation.leader, around.constants, operation.input
    assert source is not None
    work = _work(layer)
    if around.precision is Precision.FP16:
        engine, cycles = Engine.RUBIK, _rubik_cycles(work, around)
        megahertz = constants["rubik_fp16_ghz"] * 1e3 * around.clocks.dla_mhz / constants["dla_reference_mhz"]
    else:
        engine, cycles = Engine.CPIPE, _pipe_cycles(work, around, image=source.name in around.image_inputs)
        megahertz = constants["mac_efficiency"] * around.clocks.dla_mhz
    stride = int(layer.attributes.get("stride", (1, 1))[0]) if layer.kind is LayerKind.CONVOLUTION else 1
    rows = (source.chw or (1, 1, 1))[1]
    group_weights = (work.channels // work.groups) * work.taps * around.element
    use = buffer_use(
        row_bytes=padded_bytes(source, around) // (work.images * rows),
        rows=rows,
        output_rows=(layer.outputs[0].chw or (1, 1, 1))[1],
        kernel_rows=work.kernel_rows,
        stride_rows=stride,
        weight_bytes=group_weights * work.kernels,
        group_bytes=group_weights * min(work.kernels, int(constants["atom_kernels"])),
        size=BufferSize(int(constants["buffer_banks"]), int(constants["buffer_bank_bytes"])),
    )
    share = constants["sparsity_weight_share"] if _is_sparse(work, around) else 1.0
    moved = _bytes(
        operation,
        around,
        read=use.input_bytes * work.images,
        weights=ceil(use.weight_bytes * share) * (1 if use.weights_stay else work.images),
    )
    time = _combine(cycles / megahertz, work.macs, cycles, moved, engine, around)
    return replace(time, filled=_filled(work, around, image=source.name in around.image_inputs))


def _filled(work: _Work, around: Surroundings, *, image: bool) -> int:
    """Channels of a group, or the values of a kernel's row in an image, as far as one atomic operation takes them."""
    int8 = around.precision is Precision.INT8
    values = work.channels // work.groups
    if image and int8:
        values = work.kernel_width * int(around.constants["image_channels"])
    return min(values, int(around.constants["atom_channels" if int8 else "rubik_atom"]))


def _pipe_cycles(work: _Work, around: Surroundings, *, image: bool) -> float:
    """INT8: atomic operations shared by the pipelines; an image fills an atom with the taps of a kernel's row.

    A depthwise convolution has a unit of its own (DLA-SW README); the single-layer table fits one atom a cycle.
    """
    constants = around.constants
    atom_channels, atom_kernels = int(constants["atom_channels"]), int(constants["atom_kernels"])
    positions = work.images * work.rows * work.width
    if image:
        rows = ceil(work.kernel_width * constants["image_channels"] / atom_channels) * work.kernel_rows
        return rows * ceil(work.kernels / atom_kernels) * positions / constants["cpipes"]
    cycles = float(_atoms(work, atom_channels, atom_kernels) * work.taps * positions)
    if work.groups == 1 or work.groups < work.channels:
        cycles /= constants["cpipes"]
    return cycles / constants["sparsity_speedup"] if _is_sparse(work, around) else cycles


def _is_sparse(work: _Work, around: Surroundings) -> bool:
    """The pipelines use the 2:4 pattern of this convolution's weights."""
    enough = work.channels > around.constants["sparsity_min_channels"]
    return around.sparse and around.precision is Precision.INT8 and work.groups == 1 and enough


def _rubik_cycles(work: _Work, around: Surroundings) -> float:
    """FP16: one atomic operation a cycle, rows of positions filled up."""
    atom, row = int(around.constants["rubik_atom"]), int(around.constants["rubik_row"])
    positions = work.images * work.rows * ceil(work.width / row) * row
    return float(_atoms(work, atom, atom) * work.taps * positions)


def _atoms(work: _Work, atom_channels: int, atom_kernels: int) -> int:
    """Atomic operations a position and tap. Small groups share an atom, as blocks on its diagonal."""
    inside, outside = work.channels // work.groups, work.kernels // work.groups
    if work.groups == 1 or inside >= atom_channels:
        return work.groups * ceil(inside / atom_channels) * ceil(outside / atom_kernels)
    together = max(1, min(atom_channels // inside, atom_kernels // max(1, outside)))
    return ceil(work.groups / together) * ceil(outside / atom_kernels)


def _streamed(operation: Operation, around: Surroundings, engine: Engine, rate: str = "dram_gbps") -> OperationTime:
    moved = _bytes(operation, around)
    dram = moved.moved / bandwidth(around.constants, around.clocks, rate)
    us = max(dram, _sram_us(moved, around)) + gap_us(around)
    spread = around.constants["band_memory"]
    return OperationTime(us, Band(us * (1 - spread), us * (1 + spread)), Bound.MEMORY, engine, 0, 0.0, moved)


def _copy_us(operation: Operation, around: Surroundings) -> float:
    return _streamed(operation, around, Engine.BDMA, "copy_gbps").us


def _unknown(operation: Operation, around: Surroundings, reason: str) -> OperationTime:
    known = all(t is None or t.shape is not None for t in (operation.input, operation.output, *operation.operands))
    if not known or operation.input is None:
        return OperationTime(0.0, Band(0.0, 0.0), Bound.UNKNOWN, Engine.NONE, 0, 0.0, Bytes(), reason)
    time = _streamed(operation, around, Engine.NONE, "copy_gbps")
    return OperationTime(
        time.us,
        Band(0.0, time.us * around.constants["band_unknown"]),
        Bound.UNKNOWN,
        Engine.NONE,
        0,
        0.0,
        time.bytes,
        reason,
    )


def _bytes(operation: Operation, around: Surroundings, read: int | None = None, weights: int = 0) -> Bytes:
    """Traffic by kind; tensors that stay in the SRAM are counted as `resident`."""
    source, result = operation.input, operation.output
    assert source is not None
    assert result is not None
    resident = written = 0
    counted = {
        "input": padded_bytes(source, around) if read is None else read,
        "operand": 0,
        "output": padded_bytes(result, around),
    }
    padding = (
        counted["output"] - plain_bytes(result, around) + padded_bytes(source, around) - plain_bytes(source, around)
    )
    for tensor in operation.operands:
        if _stays(tensor, around):
            resident += padded_bytes(tensor, around)
        else:
            counted["operand"] += padded_bytes(tensor, around)
    for key, tensor in (("input", source), ("output", result)):
        if _stays(tensor, around):
            resident += counted[key]
            written = counted[key] if key == "output" else 0
            counted[key] = 0
    return Bytes(counted["input"], weights, counted["operand"], counted["output"], resident, max(0, padding), written)


def _sram_us(moved: Bytes, around: Surroundings) -> float:
    """Time of what stays in the SRAM, which reads and writes at once (nvdla/hw perf sheets, variant with SRAM)."""
    most = max(moved.resident_written, moved.resident - moved.resident_written)
    return most / (around.constants["port_bytes_per_cycle"] * around.clocks.dla_mhz)


def _combine(
    compute: float, macs: int, cycles: float, moved: Bytes, engine: Engine, around: Surroundings
) -> OperationTime:
    """Computing (us) and moving, and the gap; the band follows from what bounds it.

    The pipelines compute and move at the same time; for Rubik the sum fits the measurements better.
    """
    constants = around.constants
    features = (moved.moved - moved.weights) / bandwidth(constants, around.clocks)
    memory = max(features + moved.weights / bandwidth(constants, around.clocks, "weight_gbps"), _sram_us(moved, around))
    gap = gap_us(around)
    us = (compute + memory if engine is Engine.RUBIK else max(compute, memory)) + gap
    worked = Bound.MAC if compute >= memory else Bound.MEMORY
    bound = Bound.OVERHEAD if gap > max(compute, memory) else worked
    if engine is Engine.RUBIK:
        spread = constants["band_fp16"]
    else:
        spread = constants["band_memory" if bound is Bound.MEMORY else "band_convolution"]
    return OperationTime(us, Band(us * (1 - spread), us * (1 + spread)), bound, engine, macs, cycles, moved)


def _whole_atoms(layer: Layer, atom: int) -> bool:
    """A concatenation or slice along channels whose parts all begin and end at a whole atom."""
    if layer.kind is LayerKind.CONCATENATION:
        rank = layer.outputs[0].rank
        parts = layer.inputs
        along_channels = rank is not None and layer["axis"] == rank - 3
        return along_channels and all(t.chw is not None and t.chw[0] % atom == 0 for t in parts)
    start, stride = layer.attributes.get("start"), layer.attributes.get("stride")
    source, result = layer.inputs[0], layer.outputs[0]
    if start is None or source.shape is None or result.shape is None or len(start) < 3:
        return False
    rest_kept = source.shape[:-3] == result.shape[:-3] and source.shape[-2:] == result.shape[-2:]
    steps_one = stride is None or all(step == 1 for step in stride)
    return rest_kept and steps_one and start[-3] % atom == 0 and result.shape[-3] % atom == 0
