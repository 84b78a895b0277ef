"""What ONNX Runtime needs changed in a network to run it, and to run it right."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

__all__ = ["counts_padding_wrong", "runnable", "with_padding_apart"]

_PORTABLE = {"custom_op": "orinport.dcnv4.portable"}
"""Modules of ours whose `portable_proto` writes the operators of a domain as standard ones."""

_STANDARD = ("", "ai.onnx")
_COUNT_MENDED = (1, 25)
_COUNT_SINCE_OPSET = 19


def runnable(proto: onnx.ModelProto) -> onnx.ModelProto:
    """`proto` with the custom operators that we know as standard operators, and known faults avoided.

    `proto` itself if there is nothing to do. Raises OrinportError if an operator of ours cannot be written so.
    """
    for domain in dict.fromkeys(node.domain for node in proto.graph.node if node.domain in _PORTABLE):
        proto = import_module(_PORTABLE[domain]).portable_proto(proto)
    return with_padding_apart(proto) if counts_padding_wrong() else proto


@cache
def counts_padding_wrong() -> bool:
    """The installed ONNX Runtime divides an average that counts its padding by a wrong number, from opset 19 on.

    Measured: 1.23.2 and 1.24.1 do, 1.25.1 and later do not.
    """
    import onnxruntime

    return tuple(int(part) for part in onnxruntime.__version__.split(".")[:2]) < _COUNT_MENDED


def with_padding_apart(proto: onnx.ModelProto) -> onnx.ModelProto:
    """`proto` with the padding that an AveragePool counts put on by a Pad in front of it; itself if there is none.

    Pools with `auto_pad` or in ceil mode stay as they are, and so do networks of an opset before 19.
    """
    import numpy as np
    from onnx import helper, numpy_helper

    opset = max((entry.version for entry in proto.opset_import if entry.domain in _STANDARD), default=0)
    if opset < _COUNT_SINCE_OPSET or not any(_counted_pads(node) for node in proto.graph.node):
        return proto
    changed = type(proto).FromString(proto.SerializeToString())
    taken = {name for node in proto.graph.node for name in (*node.input, *node.output)}
    for node in list(changed.graph.node):
        pads = _counted_pads(node)
        if not pads:
            continue
        half = len(pads) // 2
        padded, amounts = (_unused(f"{node.output[0]}_{what}", taken) for what in ("padded", "pads"))
        full = np.asarray([0, 0, *pads[:half], 0, 0, *pads[half:]], np.int64)
        changed.graph.initializer.append(numpy_helper.from_array(full, amounts))
        place = list(changed.graph.node).index(node)
        changed.graph.node.insert(place, helper.make_node("Pad", [node.input[0], amounts], [padded]))
        pool = changed.graph.node[place + 1]
        pool.input[0] = padded
        next(each for each in pool.attribute if each.name == "pads").ints[:] = [0] * len(pads)
    return changed


def _counted_pads(node: onnx.NodeProto) -> list[int]:
    """The padding, if `node` is an average that counts it; else none."""
    if node.op_type != "AveragePool" or node.domain not in _STANDARD:
        return []
    given = {attribute.name: attribute for attribute in node.attribute}
    counted = "count_include_pad" in given and given["count_include_pad"].i
    ceil = "ceil_mode" in given and given["ceil_mode"].i
    automatic = "auto_pad" in given and given["auto_pad"].s not in (b"", b"NOTSET")
    pads = list(given["pads"].ints) if "pads" in given else []
    return pads if counted and any(pads) and not ceil and not automatic else []


def _unused(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name
