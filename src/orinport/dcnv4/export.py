"""PyTorch to ONNX through torch's current exporter: networks whose DCNv4 operators become `DCNv4_Plugin` nodes."""

from __future__ import annotations

import logging
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx_ir as ir
import torch

from orinport.dcnv4 import ops  # noqa: F401 - defines torch.ops.orinport
from orinport.dcnv4.arguments import Geometry
from orinport.dcnv4.node import (
    ATTENTION,
    DOMAIN,
    PLAIN,
    attention_attributes,
    custom_nodes,
    node_attributes,
    nodes_of,
)
from orinport.errors import MissingExtraError, OrinportError, first_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["HIGHEST_OPSET", "LOWEST_OPSET", "export_module"]

LOWEST_OPSET = 17
HIGHEST_OPSET = int(onnx.defs.onnx_opset_version())
_EXPORTER_OPSET = 18
"""The oldest operator set that torch's exporter writes; older ones are reached by lowering."""
_EXPORTER_NEWEST = 25
"""The newest operator set that the exporter of torch 2.13 reaches; newer ones by way of it."""
_METADATA = ("namespace", "pkg.torch.onnx.class_hierarchy", "pkg.torch.onnx.name_scopes")
"""What the exporter notes on nodes and is kept; the rest names files of the machine that exported."""

_REDUCTIONS = ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2")


def export_module(
    module: torch.nn.Module,
    inputs: Sequence[torch.Tensor],
    *,
    opset: int = LOWEST_OPSET,
    dynamic_batch: bool = False,
    input_names: Sequence[str] = ("input",),
    output_names: Sequence[str] = ("output",),
) -> ir.Model:
    """`module` as an ONNX network, its operators as `DCNv4_Plugin` and `FlashDeformAttn` nodes with types and shapes.

    With `dynamic_batch` the first dimension of all inputs is the symbol `batch`. Raises OrinportError if the
    exporter fails, or if an operator got lost on the way.
    """
    if not LOWEST_OPSET <= opset <= HIGHEST_OPSET:
        raise OrinportError(f"Opset {opset} cannot be written.", f"Take {LOWEST_OPSET} to {HIGHEST_OPSET}.")
    try:
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("onnxscript", "torch", "The export to ONNX") from error
    batch = torch.export.Dim("batch", min=1, max=1 << 16)
    shapes = tuple({0: batch} for _ in inputs) if dynamic_batch else None
    targets = {
        torch.ops.orinport.dcnv4.default: _translate,
        torch.ops.orinport.flash_deform_attn.default: _translate_attention,
    }
    with torch.no_grad(), _quiet():
        try:
            program = torch.export.export(module.eval(), tuple(inputs), dynamic_shapes=shapes)
            wanted = sum(node.target in targets for node in program.graph.nodes)
            exported = torch.onnx.export(
                program,
                (),
                dynamo=True,
                verbose=False,
                opset_version=min(max(opset, _EXPORTER_OPSET), _EXPORTER_NEWEST),
                input_names=list(input_names),
                output_names=list(output_names),
                custom_translation_table=targets,
            )
        except OrinportError:
            raise
        except Exception as error:  # the exporter raises whatever its parts raise
            raise OrinportError(f"torch's exporter failed: {first_line(error)}") from error
    assert exported is not None
    model: ir.Model = ir.serde.deserialize_model(ir.serde.serialize_model(exported.model))
    found = len(custom_nodes(model))
    if found != wanted:
        raise OrinportError(f"torch's exporter lost DCNv4 operators: {found} of {wanted} arrived.")
    if opset < _EXPORTER_OPSET:
        _lower_opset(model, opset)
    elif opset > model.graph.opset_imports[""]:
        _raise_opset(model, opset)
    _strip(model)
    _tidy(model)
    return model


def _translate(
    value: Any,
    offset_mask: Any,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    group: int,
    group_channels: int,
    offset_scale: float,
    remove_center: bool,
) -> Any:
    """The node for one call of `torch.ops.orinport.dcnv4`."""
    pairs = (kernel, stride, padding, dilation)
    geometry = Geometry.of_arguments((*pairs, group, group_channels, offset_scale, remove_center))
    attributes = node_attributes(geometry)
    return _operator(PLAIN, {"value": "T", "offset_mask": "T"}, attributes)(value, offset_mask, **attributes)


def _translate_attention(value: Any, shapes: Any, starts: Any, sampling_loc_attn: Any, points: int) -> Any:
    """The node for one call of `torch.ops.orinport.flash_deform_attn`."""
    attributes = attention_attributes(points)
    inputs = {
        "value": "T",
        "value_spatial_shapes": "tensor(int64)",
        "value_level_start_index": "tensor(int64)",
        "sampling_loc_attn": "T",
    }
    return _operator(ATTENTION, inputs, attributes)(value, shapes, starts, sampling_loc_attn, **attributes)


def _operator(op_type: str, inputs: Mapping[str, str], attributes: Mapping[str, float]) -> Any:
    """The node's type as onnxscript wants it described: `inputs` with their types, T the floating-point one."""
    from onnxscript import values

    schema = onnx.defs.OpSchema
    floats = ["tensor(float)", "tensor(float16)", "tensor(bfloat16)", "tensor(double)"]
    numbers = [
        schema.Attribute(name, schema.AttrType.FLOAT if isinstance(number, float) else schema.AttrType.INT)
        for name, number in attributes.items()
    ]
    description = schema(
        op_type,
        DOMAIN,
        1,
        inputs=[schema.FormalParameter(name, kind) for name, kind in inputs.items()],
        outputs=[schema.FormalParameter("output", "T")],
        type_constraints=[("T", floats, "")],
        attributes=numbers,
    )
    return values.Op(values.Opset(DOMAIN, 1), op_type, description)


def _lower_opset(model: ir.Model, opset: int) -> None:
    """From 18 to 17, in place: the axes of reductions are an attribute again."""
    for node in model.graph:
        if node.op_type not in _REDUCTIONS:
            continue
        node.attributes.pop("noop_with_empty_axes", None)
        axes = node.inputs[1] if len(node.inputs) > 1 else None
        if axes is None:
            continue
        tensor = axes.const_value
        if tensor is None:
            raise OrinportError(f"Opset {opset} cannot be written: the axes of {node.name!r} are not constant.")
        node.attributes["axes"] = ir.AttrInt64s("axes", np.asarray(tensor.numpy()).reshape(-1).tolist())
        node.resize_inputs(1)
        if axes.name and not axes.uses():
            model.graph.initializers.pop(axes.name, None)
    for node in model.graph:
        since = onnx.defs.get_schema(node.op_type, _EXPORTER_OPSET, "").since_version if node.domain == "" else 1
        if since > opset and node.op_type not in _REDUCTIONS:
            raise OrinportError(f"Opset {opset} cannot be written: {node.op_type} changed after it.", "Take 18.")
    model.graph.opset_imports[""] = opset


def _raise_opset(model: ir.Model, opset: int) -> None:
    """To a newer operator set in which every operator of the network means the same, in place.

    torch's exporter falls back to an older operator set, with a warning, where it cannot write a newer one.
    """
    written = model.graph.opset_imports[""]
    for op_type in {node.op_type for node in model.graph if node.domain == ""}:
        ours, theirs = (onnx.defs.get_schema(op_type, version, "").since_version for version in (written, opset))
        if ours != theirs:
            raise OrinportError(
                f"This torch writes opset {written} in place of {opset}, and {op_type} changed in between.",
                f"Take --opset {written}.",
            )
    model.graph.opset_imports[""] = opset


def _strip(model: ir.Model) -> None:
    """Leave no names of files and no traces of the machine in the network."""
    model.metadata_props.clear()
    model.graph.metadata_props.clear()
    for node in model.graph.all_nodes():
        for key in [key for key in node.metadata_props if key not in _METADATA]:
            del node.metadata_props[key]
        for value in node.outputs:
            value.metadata_props.clear()
    for value in (*model.graph.inputs, *model.graph.initializers.values()):
        value.metadata_props.clear()


def _tidy(model: ir.Model) -> None:
    """Call the dynamic dimension `batch`, and give attributes in the order of the plugins' fields."""
    first = model.graph.inputs[0].shape
    symbol = None if first is None or isinstance(first[0], int) else first[0].value
    for value in (*model.graph.inputs, *(value for node in model.graph for value in node.outputs)):
        if symbol is not None and value.shape is not None:
            dims = ["batch" if isinstance(dim, ir.SymbolicDim) and dim.value == symbol else dim for dim in value.shape]
            value.shape = ir.Shape(dims)
    for node in nodes_of(model):
        given = dict(node.attributes)
        node.attributes.clear()
        for name in node_attributes(Geometry(1, 1)):
            node.attributes[name] = given[name]


@contextmanager
def _quiet() -> Iterator[None]:
    """torch's exporter talks about operators that nobody asked for, and prints tracebacks that it deals with."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
