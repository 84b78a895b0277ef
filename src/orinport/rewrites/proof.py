"""Proofs: two models on the same random inputs in ONNX Runtime.

`prove` compares the two pieces of one application, `compare_models` two whole networks.

Tolerances are relative to the largest magnitude of an output and follow from the types: every node may round
once, and a sum of L products in another order differs by about the square root of L roundings of the
accumulator. Non-finite values are part of the proof: one case holds an infinity and one a NaN, and the
outputs must be infinite and NaN in the same places.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from math import prod, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir

from orinport.errors import OrinportError
from orinport.model.model import shape_of
from orinport.rewrites.cost import RECURRENT, accumulate_length, dims_of, macs
from orinport.rewrites.log import Proof, VerifyReport, VerifyRow
from orinport.rewrites.piece import embedded
from orinport.rewrites.random_inputs import random_array, random_inputs
from orinport.rewrites.runner import NotProvableError, Runner, runnable_piece

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from orinport.rewrites.edges import EdgeMapping
    from orinport.rewrites.piece import Piece
    from orinport.rewrites.runner import Arrays

__all__ = ["compare_models", "prove"]

_LARGE_MACS = 1 << 26
_BYTES_AT_ONCE = 1 << 30
_PROTO_BYTES = 1 << 26
"""Constants that cannot be lent to ONNX Runtime go there in the model's file up to this size, and else in another."""

_EPS = {ir.DataType.FLOAT16: 2.0**-10, ir.DataType.BFLOAT16: 2.0**-7, ir.DataType.DOUBLE: 2.0**-23}
_FP32_EPS = 2.0**-23


def _tolerance(before: Piece, after: Piece) -> float:
    nodes = [*before.model.graph, *after.model.graph]
    length = sum(accumulate_length(node) for node in nodes)
    types = {value.dtype for node in nodes for value in node.outputs}
    rounding = max((_EPS.get(dtype, _FP32_EPS) for dtype in types if dtype is not None), default=_FP32_EPS)
    return rounding * (4 + len(nodes)) + _FP32_EPS * 4 * sqrt(length)


# ---------------------------------------------------------------------------------------------- one application

_MAXIMA = frozenset({"GlobalMaxPool", "MaxPool", "ReduceMax", "ReduceMin", "TopK"})
"""ONNX leaves open what a maximum makes of NaN, and ONNX Runtime answers differently for each of these; its MaxPool
begins at the lowest finite number, so a window of -inf alone gives that."""


def prove(before: Piece, after: Piece, *, seed: int, bound: float = 0.0, finite: bool = False) -> Proof:
    """Run both pieces on the same inputs: ordinary, with an infinity, with a NaN, large, and of -inf alone.

    `bound` is what the rewrite states as its own error; `finite` leaves out what is not. Raises NotProvableError if
    no engine runs them.
    """
    old, new = runnable_piece(before.proto), runnable_piece(after.proto)
    threads = 2 if _is_large(before, after) else 1
    first = Runner(old.SerializeToString(), lambda: old, threads=threads)
    second = Runner(new.SerializeToString(), lambda: new, threads=threads)
    tolerance = _tolerance(before, after)
    gain = max(_gain(before), _gain(after))
    rng = np.random.default_rng([seed, int.from_bytes(before.digest[:8], "little")])
    names = {value: f"x{index}" for index, value in enumerate(before.inputs)}
    worst, detail, cases = 0.0, "", _cases(before, after)
    if finite:
        cases = [case for case in cases if not case.special]
    for case in cases:
        arrays = {names[value]: random_array(value, rng, case.scale) for value in before.inputs}
        for number in case.spoilers:
            arrays = _spoil(arrays, number, rng)
        if case.filled is not None:
            arrays = {name: _filled(array, case.filled) for name, array in arrays.items()}
        floor = gain * _largest(arrays.values())
        expected = first.run({**before.feeds, **arrays}, before.outputs)
        found = second.run({**after.feeds, **arrays}, after.outputs)
        if first.engine != second.engine:  # each falls back by itself, but only equal engines can be compared
            first.fall_back()
            second.fall_back()
            expected = first.run({**before.feeds, **arrays}, before.outputs)
            found = second.run({**after.feeds, **arrays}, after.outputs)
        for index, (want, have) in enumerate(zip(expected, found, strict=True)):
            error, problem = _difference(want, have, tolerance, bound, floor)
            worst = max(worst, error)
            if problem and case.special and first.engine != "onnxruntime":
                raise NotProvableError("onnx.reference, the only engine that runs it, lets infinities and NaN spread")
            if problem and not detail:
                detail = f"output {index}, {case}: {problem}"
    return Proof(len(cases), worst, tolerance + bound, not detail, first.engine, detail=detail)


@dataclass(frozen=True, slots=True)
class _Case:
    scale: float = 1.0
    spoilers: tuple[float, ...] = ()
    filled: float | None = None
    """Every element of every floating-point input is this."""

    @property
    def special(self) -> bool:
        """Something in it is not finite."""
        return bool(self.spoilers) or self.filled is not None

    def __str__(self) -> str:
        if self.filled is not None:
            return f"inputs of {self.filled} alone"
        return f"an input with {' and '.join(map(str, self.spoilers))}" if self.spoilers else "ordinary inputs"


def _cases(before: Piece, after: Piece) -> list[_Case]:
    """What both pieces are fed; large ones get their infinity and their NaN in one case, and no second ordinary one."""
    nodes = [*before.model.graph, *after.model.graph]
    if not before.inputs:
        return [_Case()]
    if any(node.op_type in RECURRENT for node in nodes):
        return [_Case(), _Case(), _Case(scale=16.0)]
    open_maximum = any(node.op_type in _MAXIMA for node in nodes)
    spoilers = (np.inf,) if open_maximum else (np.inf, np.nan)
    if _is_large(before, after):
        return [_Case(), _Case(spoilers=spoilers)]
    cases = [_Case(), *(_Case(spoilers=(number,)) for number in spoilers), _Case(scale=16.0)]
    return cases if open_maximum else [*cases, _Case(filled=-np.inf)]


def _spoil(arrays: Arrays, number: float, rng: np.random.Generator) -> Arrays:
    """A copy in which one element of every floating-point input is `number`."""
    spoiled = {}
    for name, array in arrays.items():
        spoiled[name] = array
        if array.size and not np.issubdtype(array.dtype, np.integer) and array.dtype != np.bool_:
            spoiled[name] = array.copy()
            spoiled[name].reshape(-1)[rng.integers(array.size)] = number
    return spoiled


def _filled(array: NDArray[Any], number: float) -> NDArray[Any]:
    return np.full_like(array, number) if _is_float(array.dtype) else array


def _is_large(before: Piece, after: Piece) -> bool:
    return sum(map(macs, (*before.model.graph, *after.model.graph))) > _LARGE_MACS


def _largest(arrays: Iterable[NDArray[Any]]) -> float:
    """Largest finite magnitude of floating-point inputs, at least 1."""
    sizes = [1.0]
    for array in arrays:
        if _is_float(array.dtype) and array.size:
            wide = np.abs(array.astype(np.float32))
            sizes.append(float(np.max(wide, initial=0.0, where=np.isfinite(wide))))
    return max(sizes)


def _gain(piece: Piece) -> float:
    """How large sums inside the piece get for inputs of magnitude 1, where they cancel to something smaller.

    For independent terms a sum of L products with weights w is about as large as the norm of w; rounding
    happens at that size, however small the result. What is divided by a value of the network afterwards has another
    size, so sums in front of a division do not count.
    """
    gains = [0.0]
    for node in _undivided(piece):
        if node.op_type in ("Conv", "ConvTranspose", "Gemm", "MatMul"):
            gains += [_norm(node, value, piece) for value in node.inputs[:2] if value is not None]
        elif node.op_type in ("Add", "Sub", "Sum"):
            gains.append(1.0)
        elif node.op_type in ("AveragePool", "GlobalAveragePool", "ReduceMean"):
            gains.append(1.0 / sqrt(accumulate_length(node)))
        elif node.op_type == "ReduceSum":
            gains.append(sqrt(accumulate_length(node)))
    return max(gains)


def _undivided(piece: Piece) -> list[ir.Node]:
    """Nodes that an output comes from by a way without a division by anything but a constant."""
    stack = [value.producer() for value in piece.model.graph.outputs]
    found: dict[ir.Node, None] = {}
    while stack:
        node = stack.pop()
        if node is None or node in found:
            continue
        found[node] = None
        divisor = node.inputs[1] if node.op_type == "Div" else None
        if divisor is None or divisor.const_value is not None:
            stack.extend(value.producer() for value in node.inputs if value is not None)
    return list(found)


def _norm(node: ir.Node, value: ir.Value, piece: Piece) -> float:
    """Largest Euclidean norm of the weights that one output sums over."""
    tensor = value.const_value
    if tensor is None:
        return 0.0
    array = piece.feeds.get(value.name or "")
    array = tensor.numpy() if array is None else array
    if array.ndim < 2:
        return float(np.linalg.norm(array.astype(np.float64)))
    if node.op_type == "Conv":
        rows = array.reshape(array.shape[0], -1)
    elif node.op_type == "ConvTranspose":
        rows = np.swapaxes(array, 0, 1).reshape(array.shape[1], -1)
    else:
        other = "transA" if value is node.inputs[0] else "transB"
        transposed = node.op_type == "Gemm" and other in node.attributes and node.attributes[other].as_int() == 1
        along_rows = (value is node.inputs[0]) != transposed
        rows = array if along_rows else np.swapaxes(array, -1, -2)
    wide = rows if rows.dtype == np.float32 else rows.astype(np.float64)
    return float(np.sqrt(np.max(np.einsum("...i,...i->...", wide, wide), initial=0.0)))


def _difference(
    want: NDArray[Any], have: NDArray[Any], tolerance: float, bound: float = 0.0, floor: float = 0.0
) -> tuple[float, str]:
    """Largest difference relative to the largest finite magnitude, and what is wrong, if anything is.

    `floor` is the size at which rounding happens even where the result is smaller.
    """
    if want.shape != have.shape:
        return float("inf"), f"shape {list(have.shape)} instead of {list(want.shape)}"
    if want.dtype != have.dtype:
        return float("inf"), f"type {have.dtype} instead of {want.dtype}"
    if want.size == 0:
        return 0.0, ""
    if not _is_float(want.dtype):
        wrong = int(np.count_nonzero(want != have))
        return (float("inf"), f"{wrong} of {want.size} elements differ") if wrong else (0.0, "")
    a, b = want.astype(np.float64), have.astype(np.float64)
    finite = np.isfinite(a)
    same = finite | (a == b) | (np.isnan(a) & np.isnan(b))
    if not same.all() or not np.array_equal(finite, np.isfinite(b)):
        return float("inf"), "NaN or infinity in other places"
    if not finite.any():
        return 0.0, ""
    gap = np.abs(np.subtract(a, b, out=np.zeros_like(a), where=finite))
    size = max(float(np.max(np.abs(a), initial=0.0, where=finite)), floor)
    largest = float(gap.max())
    relative = largest / size if size else (0.0 if largest == 0 else float("inf"))
    if largest > tolerance * size + bound * max(1.0, size):
        return relative, f"differs by {largest:.3g} where the largest value is {size:.3g}"
    return relative, ""


def _is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or dtype.name in ("bfloat16",)


# ---------------------------------------------------------------------------------------------- whole networks

_WHOLE = {ir.DataType.FLOAT16: 2.0**-5, ir.DataType.BFLOAT16: 2.0**-3}
_WHOLE_FP32 = 2.0**-12


def compare_models(
    reference: Any,
    candidate: Any,
    edges: Sequence[EdgeMapping] = (),
    *,
    cases: int = 3,
    seed: int = 0,
    tolerance: float | None = None,
    allowance: float = 0.0,
    names: tuple[str, str] = ("reference", "candidate"),
    threads: int = 2,
    any_precision: bool = False,
) -> VerifyReport:
    """Run two networks on the same random inputs and compare every output of the reference.

    `reference` and `candidate` are onnx_ir models (or `Model`s); the candidate's inputs and outputs are
    reached through `edges`. `tolerance` bounds the difference relative to an output's largest magnitude; by
    default it follows from the types, and `allowance` comes on top of that. If they differ, `diverges_at` names
    the first tensor, in the candidate's order, that both have and that differs. With `any_precision` the candidate
    may take and give other floating-point types: its numbers are compared, not its types. Raises OrinportError if
    inputs or outputs do not fit, or ONNX Runtime cannot run one of them.
    """
    first, second = _graph_model(reference), _graph_model(candidate)
    moved = {(edge.kind, edge.name): edge for edge in edges}
    _require_fit(first, second, moved)
    limit = _whole_tolerance(first, second) + allowance if tolerance is None else tolerance
    outputs = [value.name or "" for value in first.graph.outputs]
    types = {value.name or "": value.dtype for value in second.graph.inputs} if any_precision else {}
    if tolerance is None:
        limit = max([limit, *(_WHOLE.get(dtype, 0.0) + allowance for dtype in types.values() if dtype is not None)])
    rng = np.random.default_rng(seed)
    feeds = []
    try:
        for case in range(max(1, cases)):
            given = random_inputs(first.graph.inputs, rng, scale=1.0 if case != 1 else 4.0)
            feeds.append((given, {name: _to_board(moved, types, name, array) for name, array in given.items()}))
        wanted = _run_whole(first, [given for given, _ in feeds], outputs, threads)
        had = _run_whole(second, [board for _, board in feeds], outputs, threads)
        if any_precision:
            had = [[_in_type_of(a, b) for a, b in zip(*case, strict=True)] for case in zip(wanted, had, strict=True)]
        rows: dict[str, VerifyRow] = {}
        for expected, found in zip(wanted, had, strict=True):
            for name, want, have in zip(outputs, expected, found, strict=True):
                edge = moved.get(("output", name))
                row = _row(name, want, have if edge is None else edge.from_board(have), limit)
                rows[name] = row if name not in rows else _worse(rows[name], row)
        if tolerance is None and not all(row.equal for row in rows.values()):
            _allow_for_noise(rows, first, feeds, wanted, outputs, threads, rng, allowance)
        report_rows = tuple(rows[name] for name in outputs)
        diverges = (
            ""
            if all(row.equal for row in report_rows)
            else (_first_difference(first, second, feeds[0], limit, any_precision=any_precision))
        )
    except NotProvableError as error:
        raise OrinportError(f"The networks cannot be compared: {error}.") from error
    return VerifyReport(names[0], names[1], report_rows, len(feeds), seed, diverges)


_NOISE_FACTOR = 8.0
"""A difference up to this many times what one rounding of the inputs causes cannot be told from rounding."""


def _allow_for_noise(
    rows: dict[str, VerifyRow],
    model: ir.Model,
    feeds: Sequence[tuple[Arrays, Arrays]],
    wanted: Sequence[Sequence[NDArray[Any]]],
    outputs: Sequence[str],
    threads: int,
    rng: np.random.Generator,
    allowance: float,
) -> None:
    """Widen the tolerance of outputs that differ to what the reference's own conditioning makes of rounding.

    The reference runs once more on inputs of which every element is off by about one rounding, or by `allowance` where
    that is more. Networks that magnify that (a sigmoid far from saturation after many layers) differ as much under any
    reordering. Integers, truth values and shapes that depend on the data have no distance: they are undecided if this
    changes them too, or if anything is allowed, which need not come in by the inputs.
    """
    shaken = [{name: _shaken(array, rng, allowance) for name, array in given.items()} for given, _ in feeds]
    moved = _run_whole(model, shaken, outputs, threads)
    fixed = {value.name or "": shape_of(value) is not None for value in model.graph.outputs}
    for expected, found in zip(wanted, moved, strict=True):
        for name, want, have in zip(outputs, expected, found, strict=True):
            row = rows[name]
            if row.equal:
                continue
            noise, _ = _difference(want, have, float("inf"))
            limit = _NOISE_FACTOR * noise
            if np.isfinite(limit) and row.max_rel <= limit:
                rows[name] = replace(row, tolerance=limit, equal=True)
            elif not (_is_float(want.dtype) and fixed[name]) and (allowance or not np.isfinite(noise)):
                rows[name] = replace(row, undecided=True)


def _shaken(array: NDArray[Any], rng: np.random.Generator, allowance: float) -> NDArray[Any]:
    """`array` with every element off by about one rounding of its type, or `allowance`; integers as they are."""
    if not _is_float(array.dtype):
        return array
    step = float(np.finfo(np.float32).eps) if array.dtype.itemsize >= 4 else float(np.finfo(np.float16).eps)
    step = max(step, allowance)
    wide = array.astype(np.float64)
    shaken: NDArray[Any] = (wide * (1 + step * rng.uniform(-1, 1, array.shape))).astype(array.dtype)
    return shaken


def _graph_model(model: Any) -> ir.Model:
    return model if isinstance(model, ir.Model) else model.ir


def _to_board(
    moved: Mapping[tuple[str, str], EdgeMapping],
    types: Mapping[str, ir.DataType | None],
    name: str,
    array: NDArray[Any],
) -> NDArray[Any]:
    """The input as the candidate takes it: through its edge, floating-point numbers in the candidate's type."""
    edge = moved.get(("input", name))
    board = array if edge is None else edge.to_board(array)
    dtype = types.get(name)
    if dtype is None or not _is_float(board.dtype) or not _is_float(dtype.numpy()):
        return board
    return board.astype(dtype.numpy())


def _in_type_of(want: NDArray[Any], have: NDArray[Any]) -> NDArray[Any]:
    """`have` in the type of `want`, if both hold floating-point numbers."""
    return have.astype(want.dtype) if _is_float(want.dtype) and _is_float(have.dtype) else have


def _require_fit(first: ir.Model, second: ir.Model, moved: Mapping[tuple[str, str], EdgeMapping]) -> None:
    for kind in ("input", "output"):
        ours = {value.name: value for value in (first.graph.inputs if kind == "input" else first.graph.outputs)}
        theirs = {value.name: value for value in (second.graph.inputs if kind == "input" else second.graph.outputs)}
        missing = [name for name in ours if name not in theirs]
        extra = [name for name in theirs if name not in ours] if kind == "input" else []
        if missing or extra:
            raise OrinportError(
                f"The networks have different {kind}s: {', '.join(map(repr, [*missing, *extra][:4]))}.",
                "Both need the same names.",
            )
        for name, value in ours.items():
            edge = moved.get((kind, name or ""))
            want = dims_of(value) if edge is None else edge.shape
            if value.shape is None or value.dtype is None or not all(isinstance(dim, int) for dim in value.shape):
                if kind == "input":
                    raise OrinportError(f"The shape of the input {name!r} is not known.", "Give it with --shapes.")
                continue
            if theirs[name].shape is not None and dims_of(theirs[name]) != tuple(want):
                raise OrinportError(
                    f"The {kind} {name!r} has shape {list(want)} in one network"
                    f" and {list(dims_of(theirs[name]))} in the other."
                )


def _whole_tolerance(first: ir.Model, second: ir.Model) -> float:
    types = {value.dtype for model in (first, second) for node in model.graph for value in node.outputs}
    return max((_WHOLE.get(dtype, _WHOLE_FP32) for dtype in types if dtype is not None), default=_WHOLE_FP32)


def _row(name: str, want: NDArray[Any], have: NDArray[Any], tolerance: float) -> VerifyRow:
    relative, problem = _difference(want, have, tolerance)
    largest = float("inf")
    if want.shape == have.shape and _is_float(want.dtype) and want.size:
        with np.errstate(invalid="ignore"):
            gap = np.abs(want.astype(np.float64) - have.astype(np.float64))
        largest = float(np.max(gap, initial=0.0, where=np.isfinite(gap))) if np.isfinite(relative) else relative
    elif not problem:
        largest = 0.0
    return VerifyRow(name, tuple(want.shape), largest, relative, tolerance, not problem)


def _worse(left: VerifyRow, right: VerifyRow) -> VerifyRow:
    if left.equal != right.equal:
        return left if not left.equal else right
    return left if left.max_rel >= right.max_rel else right


def _run_whole(
    model: ir.Model, feeds: Sequence[Arrays], outputs: Sequence[str], threads: int
) -> list[list[NDArray[Any]]]:
    """The outputs for each of `feeds`; the session lives only as long as this takes."""
    graph = model.graph.clone()
    for node in graph.all_nodes():
        node.name = None  # ONNX Runtime refuses two nodes of one name
    nameless = ir.Model(graph, ir_version=max(model.ir_version, 4), functions=list(model.functions.values()))
    tensors = {name: v.const_value for name, v in graph.initializers.items() if v.const_value is not None}
    lent = {name: tensor for name, tensor in tensors.items() if _can_be_lent(tensor)}
    size = sum(tensor.nbytes for tensor in tensors.values())
    with tempfile.TemporaryDirectory(prefix="orinport-") as folder:
        path = Path(folder) / "model.onnx"
        weights: Arrays = {}
        if size < _PROTO_BYTES or size - sum(tensor.nbytes for tensor in lent.values()) < _PROTO_BYTES:
            weights = _take_out(graph, lent, path.with_name("weights"))
            proto = ir.to_proto(nameless)
        else:
            ir.save(nameless, path, external_data="model.onnx.data")
            proto = onnx.ModelProto.FromString(path.read_bytes())
        path.write_bytes(runnable_piece(proto).SerializeToString())
        runner = Runner(str(path), threads=threads, weights=weights)
        return [runner.run(arrays, outputs) for arrays in feeds]


_LENT_BYTES = 1 << 12
_LENT_TYPES = frozenset(
    {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.INT8, ir.DataType.INT32, ir.DataType.INT64}
)


def _can_be_lent(tensor: ir.TensorProtocol) -> bool:
    """Large, and of a type that NumPy and ONNX Runtime hold alike."""
    return tensor.nbytes >= _LENT_BYTES and tensor.dtype in _LENT_TYPES


def _take_out(graph: ir.Graph, lent: Mapping[str, ir.TensorProtocol], file: Path) -> Arrays:
    """The weights `lent`, which ONNX Runtime reads where they lie instead of making a copy of its own.

    In the graph they become references to `file`, which ONNX Runtime wants to exist and does not read; all others are
    held in memory. What does not lie there as ONNX Runtime wants it (a view, an odd address) is copied.
    """
    file.touch()
    for name, value in graph.initializers.items():
        tensor = value.const_value
        if name in lent:
            shape = ir.Shape(lent[name].shape.numpy())
            stub = ir.ExternalTensor(file.name, 0, lent[name].nbytes, lent[name].dtype, shape=shape, name=name)
            value.const_value = stub
        elif tensor is not None:
            value.const_value = embedded(tensor)
    return {name: np.require(tensor.numpy(), requirements=["C", "A"]) for name, tensor in lent.items()}


def _first_difference(
    first: ir.Model, second: ir.Model, feeds: tuple[Arrays, Arrays], tolerance: float, *, any_precision: bool
) -> str:
    """The first tensor in the candidate's order that both networks have and that differs."""
    known = {value.name: value for node in first.graph for value in node.outputs if value.name}
    common = [
        value
        for node in second.graph
        for value in node.outputs
        if value.name in known and value.shape is not None and dims_of(value) == dims_of(known[value.name])
    ]
    batch: list[str] = []
    size = 0
    for value in [*common, None]:
        if value is not None:
            batch.append(value.name or "")
            size += prod(dims_of(value)) * 8
        if batch and (value is None or size > _BYTES_AT_ONCE):
            wants = _run_whole(_with_outputs(first, batch), feeds[:1], batch, 2)[0]
            haves = _run_whole(_with_outputs(second, batch), feeds[1:], batch, 2)[0]
            for name, want, have in zip(batch, wants, haves, strict=True):
                if _difference(want, _in_type_of(want, have) if any_precision else have, tolerance)[1]:
                    return name
            batch, size = [], 0
    return ""


def _with_outputs(model: ir.Model, names: Sequence[str]) -> ir.Model:
    """The same network with other outputs."""
    graph = model.graph.clone()
    values = {value.name: value for node in graph for value in node.outputs}
    graph.outputs.clear()
    graph.outputs.extend(values[name] for name in names)
    return ir.Model(graph, ir_version=model.ir_version)
