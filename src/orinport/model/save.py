"""A model back to ONNX: copies, protos, files."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import onnx_ir as ir

from orinport.errors import OrinportError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    import onnx

    from orinport.model.model import Model

__all__ = ["copy_model", "save", "save_proto", "to_proto"]

EMBEDDED_BYTES = 1_900_000_000
"""Weights that still fit into one ONNX file, whose format ends at 2 GiB, nodes and names included."""
_SMALL_BYTES = 4096
"""Tensors of up to this size stay in the ONNX file, so that shapes and axes can be read without the data file."""
_ALIGNMENT = 4096


def copy_model(model: Model) -> Model:
    """A model with a graph of its own that may be edited; the weights are shared, never copied."""
    return replace(model, ir=model.ir.clone(), _values={})


def to_proto(model: Model) -> onnx.ModelProto:
    """The model as a proto that holds all weights. Raises OrinportError if they are more than a proto can hold."""
    size = _weight_bytes(model.ir.graph)
    if size > EMBEDDED_BYTES:
        raise OrinportError(
            f"{model.name!r} has {size} bytes of weights, more than one ONNX file holds.", "Save it to a folder."
        )
    return _serialize(model.ir, model.name)


def save(model: Model, path: str | os.PathLike[str], *, apart: bool = False) -> tuple[Path, ...]:
    """Write the model to `path`, atomically; returns the files that were written.

    More than `EMBEDDED_BYTES` of weights go to a second file beside it, named `<name>.data`; with `apart` they always
    do, since ONNX Runtime maps them from there instead of reading them. A file that stands at `path` is replaced.
    Raises OrinportError if the files cannot be written.
    """
    target = Path(path)
    if not apart and _weight_bytes(model.ir.graph) <= EMBEDDED_BYTES:
        with _replacing(target) as file:
            _write_embedded(model, file)
        return (target,)
    data = target.with_name(f"{target.name}.data")
    outside = model.ir.clone()
    with _replacing(data) as file:
        _write_weights(outside.graph, file, data.name)
    save_proto(_serialize(outside, model.name), target)
    return target, data


def save_proto(proto: onnx.ModelProto, path: Path) -> None:
    """Write a proto to one file, atomically; a file that stands there is replaced. Raises OrinportError."""
    with _replacing(path) as file:
        file.write_bytes(proto.SerializeToString(deterministic=True))


def _weight_bytes(graph: ir.Graph) -> int:
    return sum(v.const_value.nbytes for v in graph.initializers.values() if v.const_value is not None)


def _serialize(model: ir.Model, name: str) -> onnx.ModelProto:
    try:
        proto: onnx.ModelProto = ir.serde.serialize_model(_embedded(model))
    except (OSError, ValueError, TypeError, RuntimeError, MemoryError) as error:
        raise OrinportError(f"{name!r} cannot be written as ONNX: {error}") from error
    return proto


def _embedded(model: ir.Model) -> ir.Model:
    """`model` with its external data read in, unless they are those that `save` has just written."""
    external = [v for v in model.graph.initializers.values() if isinstance(v.const_value, ir.ExternalTensor)]
    if not any(value.const_value.base_dir for value in external):  # type: ignore[union-attr]
        return model
    copy = model.clone()
    for value in copy.graph.initializers.values():
        tensor = value.const_value
        if isinstance(tensor, ir.ExternalTensor) and tensor.base_dir:
            value.const_value = ir.LazyTensor(_Read(tensor), dtype=tensor.dtype, shape=tensor.shape, name=tensor.name)
    return copy


class _Read:
    """External data as a tensor in memory, when asked for."""

    def __init__(self, tensor: ir.ExternalTensor) -> None:
        self.tensor = tensor

    def __call__(self) -> ir.TensorProtocol:
        return ir.Tensor(self.tensor.numpy(), dtype=self.tensor.dtype, name=self.tensor.name)


def _write_embedded(model: Model, file: Path) -> None:
    """Write the model with its weights in the same file, each straight from where it lies: no second copy in memory.

    The order of fields in a message is free in protobuf: the weights are the last of the graph's.
    """
    outside = model.ir.clone()
    large: dict[int, ir.TensorProtocol] = {}
    for index, value in enumerate(outside.graph.initializers.values()):
        tensor = value.const_value
        if tensor is None or tensor.nbytes <= _SMALL_BYTES or tensor.dtype == ir.DataType.STRING:
            continue
        large[index] = tensor
        value.const_value = ir.ExternalTensor(
            "-",
            0,
            tensor.nbytes,
            tensor.dtype,
            shape=ir.Shape(tensor.shape.numpy()),
            name=value.name or "",
            doc_string=tensor.doc_string,
            metadata_props=dict(tensor.metadata_props),
        )
    proto = _serialize(outside, model.name)
    heads = [_head(each, index in large) for index, each in enumerate(proto.graph.initializer)]
    del proto.graph.initializer[:]
    graph = proto.graph.SerializeToString(deterministic=True)
    proto.ClearField("graph")
    sizes = [len(head) + (large[index].nbytes if index in large else 0) for index, head in enumerate(heads)]
    whole = len(graph) + sum(len(_prefix(_INITIALIZER, size)) + size for size in sizes)
    with file.open("wb") as stream:
        stream.write(proto.SerializeToString(deterministic=True) + _prefix(_GRAPH, whole) + graph)
        for index, (head, size) in enumerate(zip(heads, sizes, strict=True)):
            stream.write(_prefix(_INITIALIZER, size) + head)
            if index in large:
                _write_tensor(large[index], stream)


_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
"""Numbers of fields in onnx.proto: of the graph in a model, of a weight in a graph, of its data."""
_LENGTH_DELIMITED = 2


def _head(tensor: onnx.TensorProto, large: bool) -> bytes:
    """A weight as it stands in the file; of one whose data follow, all in front of them."""
    if not large:
        return bytes(tensor.SerializeToString(deterministic=True))
    size = next(int(entry.value) for entry in tensor.external_data if entry.key == "length")
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")
    return bytes(tensor.SerializeToString(deterministic=True)) + _prefix(_RAW_DATA, size)


def _prefix(field: int, size: int) -> bytes:
    """What stands in front of `size` bytes of a field in protobuf: its number and its length."""
    data = bytearray([field << 3 | _LENGTH_DELIMITED])
    while size > 0x7F:
        data.append(size & 0x7F | 0x80)
        size >>= 7
    data.append(size)
    return bytes(data)


def _write_tensor(tensor: ir.TensorProtocol, stream: BinaryIO) -> None:
    start = stream.tell()
    write = getattr(tensor, "tofile", None)
    try:
        if write is None:
            stream.write(tensor.tobytes())
        else:
            write(stream)
    except (ValueError, TypeError, RuntimeError, MemoryError) as error:
        raise OrinportError(f"The weights {tensor.name!r} cannot be written: {error}.") from error
    assert stream.tell() - start == tensor.nbytes, f"{tensor.name!r} is not as large as it says"


def _write_weights(graph: ir.Graph, file: Path, location: str) -> None:
    """Write the weights of `graph` one after the other and leave references to them in it."""
    with file.open("wb") as stream:
        for value in graph.initializers.values():
            tensor = value.const_value
            if tensor is None or tensor.nbytes <= _SMALL_BYTES or tensor.dtype == ir.DataType.STRING:
                continue
            stream.write(b"\0" * (-stream.tell() % _ALIGNMENT))
            offset = stream.tell()
            _write_tensor(tensor, stream)
            value.const_value = ir.ExternalTensor(
                location,
                offset,
                stream.tell() - offset,
                tensor.dtype,
                shape=ir.Shape(tensor.shape.numpy()),
                name=value.name or "",
            )


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """A new file beside `target` that takes its place once it is complete."""
    temporary = target.with_name(f".{target.name[:200]}.{uuid4().hex}.tmp")
    try:
        yield temporary
        temporary.replace(target)
    except OSError as error:
        raise OrinportError(f"{str(target)!r} cannot be written: {error.strerror or error}.") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
