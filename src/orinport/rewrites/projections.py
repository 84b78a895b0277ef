"""Fuse the projections of every DCNv4 operator of a network, or take the fused operators apart, with proof.

A network with a dynamic batch is rewritten at two batches, where every application is proved by itself. What differs
between the results depends on the batch and is made dynamic again; then networks before and after are compared as a
whole at other batches.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir

from orinport.dcnv4.infer import complete_shapes
from orinport.dcnv4.node import FUSED, PLAIN, nodes_of
from orinport.errors import OrinportError
from orinport.model.load import load
from orinport.model.model import Model
from orinport.rewrites.catalogue.fuse_dcnv4_projections import FuseDCNv4Projections
from orinport.rewrites.catalogue.split_dcnv4_projections import SplitDCNv4Projections
from orinport.rewrites.driver import rewrite_model
from orinport.rewrites.proof import compare_models
from orinport.rewrites.rewrite import Rewrite

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orinport.results import VerifyReport
    from orinport.rewrites.log import RewriteLog

__all__ = ["Fusion", "fuse_projections"]

_BATCHES = (2, 3)
_PROVED_BATCHES = (1, 5)

_Dims = dict[str, list[int | str]]


@dataclass(frozen=True, slots=True)
class Fusion:
    """The rewritten network, the log of its applications, and the comparisons of the whole."""

    model: Model
    log: RewriteLog
    proofs: tuple[VerifyReport, ...]
    operators: int
    """DCNv4 operators of the kind that is rewritten, before."""

    @property
    def proved(self) -> bool:
        """Nothing was rolled back, and the networks agree."""
        return not self.log.rolled_back and all(proof.equal for proof in self.proofs)


def fuse_projections(source: Any, *, reverse: bool = False, seed: int = 0) -> Fusion:
    """Fuse value and offset projections wherever that is sound; `reverse` takes fused operators apart.

    `source` is anything that `orinport.model.load` reads; it is not changed. Raises OrinportError if it cannot be
    read, or if something in it depends on the batch in a way that cannot be kept.
    """
    rewrite: Rewrite = SplitDCNv4Projections() if reverse else FuseDCNv4Projections()
    kind = FUSED if reverse else PLAIN
    if isinstance(source, (Model, ir.Model)):
        source = ir.to_proto(source.ir if isinstance(source, Model) else source)
    dims = _dynamic_inputs(source)
    models = [load(source, shapes=_numbers(dims, batch) or None) for batch in (_BATCHES if dims else _BATCHES[:1])]
    operators = sum(node.op_type == kind for node in nodes_of(models[0].ir))
    done = [rewrite_model(model, rewrites=[rewrite], seed=seed) for model in models]
    log = done[0][1]
    if not dims:
        result = done[0][0]
        proofs = (compare_models(models[0], result, cases=2, seed=seed),) if log.applied else ()
        return Fusion(result, log, proofs, operators)
    result = _dynamic_again(done[0][0], done[1][0], dims)
    if not log.applied:
        return Fusion(result, log, (), operators)
    proto = ir.to_proto(result.ir)
    shapes = [_numbers(dims, batch) for batch in _PROVED_BATCHES]
    proved = (compare_models(load(source, shapes=s), load(proto, shapes=s), cases=1, seed=seed) for s in shapes)
    return Fusion(result, log, tuple(proved), operators)


def _dynamic_inputs(source: Any) -> _Dims:
    """Inputs with dimensions that are not numbers, with all their dimensions."""
    proto = source
    if isinstance(source, (str, Path, bytes)):
        proto = onnx.ModelProto()
        try:
            proto.ParseFromString(source if isinstance(source, bytes) else Path(source).read_bytes())
        except Exception:  # load() says better what is wrong
            return {}
    if not isinstance(proto, onnx.ModelProto):
        return {}
    constant = {tensor.name for tensor in proto.graph.initializer}
    found: _Dims = {}
    for value in proto.graph.input:
        shape = value.type.tensor_type.shape.dim
        dims: list[int | str] = [
            dim.dim_value if dim.WhichOneof("value") == "dim_value" else dim.dim_param or "batch" for dim in shape
        ]
        if value.name not in constant and any(isinstance(dim, str) for dim in dims):
            found[value.name] = dims
    for name, dims in found.items():
        if len({dim for dim in dims if isinstance(dim, str)}) > 1 or not isinstance(dims[0], str):
            raise OrinportError(
                f"The input {name!r} is dynamic in more than its batch: {'x'.join(map(str, dims))}.",
                "Fix height and width first.",
            )
    return found


def _numbers(dims: _Dims, batch: int) -> dict[str, list[int]]:
    return {name: [dim if isinstance(dim, int) else batch for dim in each] for name, each in dims.items()}


def _dynamic_again(first: Model, second: Model, dims: _Dims) -> Model:
    """One network with dynamic inputs from the same network at two batches."""
    for node, other in zip(first.graph, second.graph, strict=True):
        assert node.op_type == other.op_type, "rewriting depends on the batch"
        for index, (value, twin) in enumerate(zip(node.inputs, other.inputs, strict=True)):
            if value is None or twin is None or value.const_value is None or value.const_value is twin.const_value:
                continue
            _same_or_open(first, node, index, twin)
    for value in first.graph.inputs:
        if value.name in dims:
            value.shape = ir.Shape(dims[value.name])
    for node in first.graph:
        for value in node.outputs:
            if value.const_value is None:
                value.shape = None
    complete_shapes(first.ir)
    return replace(first, _values={})


def _same_or_open(model: Model, node: ir.Node, index: int, twin: ir.Value) -> None:
    """Leave a constant that is equal at both batches; open the dimension of a reshape that is not."""
    value = node.inputs[index]
    assert value is not None
    assert value.const_value is not None
    assert twin.const_value is not None
    ours, theirs = value.const_value.numpy(), twin.const_value.numpy()
    if ours.shape == theirs.shape and np.array_equal(ours, theirs, equal_nan=ours.dtype.kind == "f"):
        return
    target = _open(ours, theirs) if node.op_type == "Reshape" and index == 1 else None
    if target is None:
        raise OrinportError(
            f"The input {index} of {node.op_type} {node.name!r} depends on the batch and cannot be kept dynamic.",
            "Give the network a fixed batch.",
        )
    name = f"{value.name}_dynamic"
    opened = model.graph.initializers.get(name)
    if opened is None:
        tensor = ir.tensor(target, name=name)
        opened = ir.Value(name=name, shape=ir.Shape(target.shape), type=ir.TensorType(tensor.dtype), const_value=tensor)
        model.graph.register_initializer(opened)
    node.replace_input_with(index, opened)
    if value.name and not value.uses():
        model.graph.initializers.pop(value.name, None)


def _open(ours: NDArray[Any], theirs: NDArray[Any]) -> NDArray[Any] | None:
    """The target of a reshape with the one dimension that differs left open."""
    if ours.shape != theirs.shape or np.count_nonzero(ours != theirs) != 1 or -1 in ours:
        return None
    return np.where(ours == theirs, ours, -1)
