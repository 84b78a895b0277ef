"""The network as ONNX Runtime optimises it, with every watched tensor counted where it is made.

ONNX Runtime writes the optimised network to a file while all tensors that have to be watched are outputs, so that
nothing is fused that would hide one of them. Convolutions then work in ONNX Runtime's blocked layout (NCHWc), from
which only those outputs are reordered. Here the outputs are taken away again, with their reorderings, and a `Tap` (see
`tap`) stands on the blocked tensor instead. A batch normalisation, a sum with another tensor and a ReLU or Clip that
follow are computed by the same node, as long as nothing else reads what lies between.

The channels that the blocked layout adds to fill its last block are never counted.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from orinport.model.runtime import open_session
from orinport.precision.histogram import spread
from orinport.precision.tap import DOMAIN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

__all__ = ["Tapped", "UntappableError", "tapped"]

_BLOCKED = "com.microsoft.nchwc"
_NOTHING, _RELU, _CLIP = 0, 1, 2
_EQUAL = ("CommonSubexpressionElimination",)
"""What would take a Clip for a ReLU of the same tensor while it is written as one."""
_CLIP_INPUTS = 11
"""The operator set from which on the limits of a Clip are inputs."""


class UntappableError(Exception):
    """The network cannot be watched this way; the text says why."""


@dataclass(frozen=True, slots=True)
class Tapped:
    """A network with taps, and which counter holds what."""

    path: Path
    """Its file; larger weights lie beside it."""
    slots: Mapping[str, int]
    """The counter of every tensor that was asked for."""
    output: str
    """An output that costs nothing."""


@dataclass(slots=True)
class _Chain:
    """Steps that one tap computes, from the tensor `start` on."""

    start: str
    end: str
    channels: int
    block: int
    position: int
    """Of the node behind which the tap stands."""
    first: int
    scaled: int = -1
    summed: int = -1
    clipped: int = -1
    activation: int = _NOTHING
    least: float = 0.0
    most: float = 0.0
    scale: NDArray[np.float32] | None = None
    bias: NDArray[np.float32] | None = None
    other: str = ""
    taken: list[int] = field(default_factory=list)
    """Positions of the nodes that the tap replaces."""


def tapped(
    source: str | bytes, names: Mapping[str, tuple[int, ...]], threads: int, folder: Path, *, limit: int = 0
) -> Tapped:
    """The network, whose outputs are at least `names` (with their shapes), tapped; its files go to `folder`.

    Of a tensor of more than `limit` elements about so many are counted, in evenly spread blocks; all, if it is 0.
    `source` is a file, whose folder must be writable, or what would stand in one that holds all weights. Raises
    UntappableError if that is not possible, and whatever ONNX Runtime raises.
    """
    content = source if isinstance(source, bytes) else Path(source).read_bytes()
    clips: dict[str, tuple[float, float]] = {}
    if b"Clip" in content:
        content, clips = _disguised(content, names)
    path = folder / "optimised.onnx"
    with ExitStack() as left:
        if clips or isinstance(source, bytes):
            # Beside the file, since that is where its weights are.
            given = (folder if isinstance(source, bytes) else Path(source).parent) / f"{folder.name}.onnx"
            left.callback(given.unlink)
            given.write_bytes(content)
            source = str(given)
        del content
        open_session(source, threads=threads, optimised_to=path, without=_EQUAL if clips else ())
    return _Tapper(path, names, clips, limit).result(folder / "tapped.onnx")


def _disguised(content: bytes, names: Mapping[str, tuple[int, ...]]) -> tuple[bytes, dict[str, tuple[float, float]]]:
    """The network with a ReLU for every Clip with constant limits, and these by the tensor that comes out.

    ONNX Runtime keeps the blocked layout through a ReLU, and leaves it for a Clip that it cannot fuse.
    """
    model = onnx.load_from_string(content)
    constants = {each.name: each for each in model.graph.initializer}
    variable = {each.name for each in model.graph.input}
    clips = {}
    for node in model.graph.node:
        if node.domain or node.op_type != "Clip" or node.output[0] not in names:
            continue
        limits = _limits(node, {name: each for name, each in constants.items() if name not in variable})
        if limits is not None:
            clips[node.output[0]] = limits
            node.op_type = "Relu"
            del node.input[1:], node.attribute[:]
    return model.SerializeToString(), clips


def _limits(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> tuple[float, float] | None:
    """The limits of a Clip; None if they are not constant, or not in order."""
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    limits = [float(attributes.get("min", -np.inf)), float(attributes.get("max", np.inf))]
    for index, name in enumerate(node.input[1:3]):
        if name:
            array = numpy_helper.to_array(constants[name]) if name in constants else None
            if array is None or array.size != 1 or array.dtype != np.float32:
                return None
            limits[index] = float(array.reshape(()))
    return (limits[0], limits[1]) if limits[0] <= limits[1] else None


class _Tapper:
    def __init__(
        self,
        optimised: Path,
        names: Mapping[str, tuple[int, ...]],
        clips: Mapping[str, tuple[float, float]],
        limit: int,
    ) -> None:
        self.limit = limit
        model = onnx.load_from_string(optimised.read_bytes())
        self.model, self.names, self.clips, self.folder = model, names, clips, optimised.parent
        self.nodes = list(model.graph.node)
        if any(a.type in (a.GRAPH, a.GRAPHS) for node in self.nodes for a in node.attribute):
            raise UntappableError("it has subgraphs")
        self.constants = {each.name: each for each in model.graph.initializer}
        self.inputs = {each.name for each in model.graph.input} - set(self.constants)
        self.slots: dict[str, int] = {}
        self.layouts: dict[str, tuple[str, int, int]] = {}
        """Of every tensor of the file that is watched: its name, channels and block."""
        self._unorder()
        self.readers: dict[str, list[int]] = {}
        for index, node in enumerate(self.nodes):
            for name in node.input:
                self.readers.setdefault(name, []).append(index)
        self.makers = {name: index for index, node in enumerate(self.nodes) for name in node.output}
        for tensor, (name, _, _) in self.layouts.items():
            if name in clips and self.nodes[self.makers[tensor]].op_type != "Relu":
                raise UntappableError(f"{name!r} is no longer clipped by itself")

    def _unorder(self) -> None:
        """Take the outputs away, and with them what only brings them into order."""
        read = {name for node in self.nodes for name in node.input}
        made = {name: node for node in self.nodes for name in node.output}
        unused = []
        for name, shape in self.names.items():
            node = made.get(name)
            if node is None and name not in self.inputs:
                raise UntappableError(f"{name!r} is gone")
            if node is None or (node.domain, node.op_type) != (_BLOCKED, "ReorderOutput"):
                self._watch(name, name, shape[1] if len(shape) > 1 else 0, 0)
                continue
            last = next((a.i for a in node.attribute if a.name == "channels_last"), 0)
            if last or len(shape) < 3:
                raise UntappableError(f"{name!r} is ordered otherwise")
            self._watch(name, node.input[0], shape[1], block_of())
            if name not in read:
                unused.append(node)
        self.nodes = [node for node in self.nodes if not any(node is each for each in unused)]

    def _watch(self, name: str, tensor: str, channels: int, block: int) -> None:
        if tensor in self.layouts:
            self.slots[name] = self.slots[self.layouts[tensor][0]]
            return
        self.slots[name] = len(self.layouts)
        self.layouts[tensor] = (name, channels, block)

    def result(self, path: Path) -> Tapped:
        chains = self._chains()
        gone = {index for chain in chains for index in chain.taken}
        for tensor, (name, _, _) in self.layouts.items():
            if name in self.clips and self.makers[tensor] not in gone:
                self._undisguise(self.nodes[self.makers[tensor]], self.clips[name])
        behind: dict[int, list[onnx.NodeProto]] = {}
        for chain in chains:
            behind.setdefault(chain.position, []).append(self._node(chain))
        nodes = list(behind.pop(-1, []))
        for index, node in enumerate(self.nodes):
            if index not in gone:
                nodes.append(node)
            nodes.extend(behind.pop(index, []))
        graph = self.model.graph
        output = self._smallest(chains)
        del graph.node[:], graph.output[:], graph.value_info[:]
        graph.node.extend(nodes)
        graph.output.append(helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, None))
        self.model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
        path.write_bytes(self.model.SerializeToString())
        return Tapped(path, self.slots, output)

    def _undisguise(self, node: onnx.NodeProto, limits: tuple[float, float]) -> None:
        """Make a Clip again of the ReLU that stands for one."""
        node.op_type = "Clip"
        opset = next((each.version for each in self.model.opset_import if each.domain == ""), 1)
        for key, limit in zip(("min", "max"), limits, strict=True):
            if opset < _CLIP_INPUTS:
                node.attribute.append(helper.make_attribute(key, limit))
                continue
            name = f"orinport {key} {node.output[0]}"
            self.model.graph.initializer.append(numpy_helper.from_array(np.array(limit, np.float32), name))
            node.input.append(name)

    def _smallest(self, chains: list[_Chain]) -> str:
        """The output of the tap with fewest values: ONNX Runtime insists on handing out something."""
        sizes = {self.slots[name]: int(np.prod(shape, dtype=np.int64)) for name, shape in self.names.items()}
        return min(chains, key=lambda chain: sizes[chain.first]).end

    # ------------------------------------------------------------------------------------------ chains

    def _chains(self) -> list[_Chain]:
        order = sorted(self.layouts, key=lambda tensor: self.makers.get(tensor, -1))
        started: set[str] = set()
        """Tensors that some chain counts already."""
        chains = []
        for tensor in order:
            if tensor in started:
                continue
            name, channels, block = self.layouts[tensor]
            chain = _Chain(tensor, tensor, channels, block, self.makers.get(tensor, -1), self.slots[name])
            started.add(tensor)
            while (following := self._following(chain, started)) is not None:
                started.add(following)
            chains.append(chain)
        return chains

    def _following(self, chain: _Chain, started: set[str]) -> str | None:
        """Take the one node that reads the chain's end into it, if it is a step that can be; the new end."""
        readers = self.readers.get(chain.end, [])
        if len(readers) != 1 or chain.activation or chain.end in self.inputs:
            return None
        node = self.nodes[readers[0]]
        if len(node.output) != 1 or node.output[0] in started:
            return None
        if not (self._scaled(chain, node) or self._summed(chain, node) or self._activated(chain, node)):
            return None
        chain.taken.append(readers[0])
        chain.position = max(chain.position, readers[0])
        chain.end = node.output[0]
        return chain.end

    def _same_layout(self, chain: _Chain, tensor: str) -> int | None:
        """The counter of `tensor` if it lies in memory as the chain's start does."""
        found = self.layouts.get(tensor)
        if found is None or found[1:] != (chain.channels, chain.block):
            return None
        start = self.layouts[chain.start][0]
        return self.slots[found[0]] if self.names[start] == self.names[found[0]] else None

    def _scaled(self, chain: _Chain, node: onnx.NodeProto) -> bool:
        if chain.scaled >= 0 or chain.summed >= 0 or node.input[0] != chain.end:
            return False
        slot = self._same_layout(chain, node.output[0])
        if slot is None:
            return False
        if (node.domain, node.op_type) == (_BLOCKED, "Conv"):
            found = self._blocked_scale(chain, node)
        elif (node.domain, node.op_type) == ("", "BatchNormalization"):
            found = self._plain_scale(node)
        else:
            return False
        if found is None:
            return False
        chain.scale, chain.bias = found
        chain.scaled = slot
        return True

    def _blocked_scale(
        self, chain: _Chain, node: onnx.NodeProto
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]] | None:
        """Of a batch normalisation as the blocked layout has it: one factor and one addend a channel."""
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if set(attributes) - {"auto_pad", "group"} or attributes.get("auto_pad", b"NOTSET") != b"NOTSET":
            return None
        arrays = [self._constant(name) for name in node.input[1:]]
        if len(arrays) != 2 or any(array is None for array in arrays):
            return None
        scale, bias = (np.asarray(array, np.float32).reshape(-1) for array in arrays)
        padded = -(-chain.channels // chain.block) * chain.block
        filters = self.constants[node.input[1]].dims
        if attributes.get("group") != padded or list(filters[1:]) != [1] * (len(filters) - 1):
            return None
        return (scale, bias) if scale.size == bias.size == padded else None

    def _plain_scale(self, node: onnx.NodeProto) -> tuple[NDArray[np.float32], NDArray[np.float32]] | None:
        arrays = [self._constant(name) for name in node.input[1:5]]
        if any(array is None or array.dtype != np.float32 for array in arrays):
            return None
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if attributes.get("training_mode", 0) or not attributes.get("spatial", 1):
            return None
        gamma, beta, mean, variance = (np.asarray(array, np.float32).reshape(-1) for array in arrays)
        scale = gamma / np.sqrt(variance + np.float32(attributes.get("epsilon", 1e-5)))
        return scale.astype(np.float32), (beta - mean * scale).astype(np.float32)

    def _summed(self, chain: _Chain, node: onnx.NodeProto) -> bool:
        if node.domain or node.op_type not in ("Add", "Sum") or len(node.input) != 2 or chain.summed >= 0:
            return False
        left, right = node.input
        other = right if left == chain.end else left
        slot = self._same_layout(chain, node.output[0])
        if slot is None or left == right or not self._alike(chain, other):
            return False
        chain.summed, chain.other = slot, other
        return True

    def _alike(self, chain: _Chain, tensor: str) -> bool:
        """Whether `tensor` has the chain's layout and shape; the ReLU of a watched tensor has that tensor's."""
        if tensor in self.constants:
            return False
        maker = self.makers.get(tensor)
        if tensor not in self.layouts and maker is not None:
            node = self.nodes[maker]
            if (node.domain, node.op_type) == ("", "Relu"):
                tensor = node.input[0]
        return self._same_layout(chain, tensor) is not None

    def _activated(self, chain: _Chain, node: onnx.NodeProto) -> bool:
        if node.domain or node.input[0] != chain.end:
            return False
        clipped = self.layouts.get(node.output[0])
        if node.op_type == "Relu" and clipped is None:
            chain.activation = _RELU
            return True
        if node.op_type == "Relu" and clipped is not None:
            limits = self.clips.get(clipped[0])
        elif node.op_type == "Clip":
            limits = _limits(node, {name: self.constants[name] for name in self.constants.keys() - self.inputs})
        else:
            return False
        slot = self._same_layout(chain, node.output[0])
        if slot is None or limits is None:
            return False
        chain.activation, chain.clipped = _CLIP, slot
        chain.least, chain.most = limits
        return True

    def _constant(self, name: str) -> NDArray[Any] | None:
        found = self.constants.get(name)
        if found is None or name in self.inputs:
            return None
        array: NDArray[Any] = numpy_helper.to_array(found, str(self.folder))
        return array

    # ------------------------------------------------------------------------------------------ nodes

    def _node(self, chain: _Chain) -> onnx.NodeProto:
        """The tap; where it has the tensor's own name as its output, the tensor gets another one."""
        start, end = chain.start, chain.end
        if start == end:
            if start in self.inputs:
                end = f"orinport tapped {start}"
            else:
                start = f"orinport untapped {start}"
                maker = self.nodes[self.makers[end]]
                maker.output[list(maker.output).index(end)] = start
        chain.end = end
        inputs = [start, "", "", ""]
        for index, array in enumerate((chain.scale, chain.bias), 1):
            if array is not None:
                inputs[index] = f"orinport {('scale', 'bias')[index - 1]} {end}"
                self.model.graph.initializer.append(numpy_helper.from_array(array, inputs[index]))
        inputs[3] = chain.other
        while not inputs[-1]:
            inputs.pop()
        node = helper.make_node(
            "Tap",
            inputs,
            [end],
            name=f"orinport tap {end}",
            domain=DOMAIN,
            first=chain.first,
            scaled=chain.scaled,
            summed=chain.summed,
            clipped=chain.clipped,
            activation=chain.activation,
            channels=chain.channels,
            block=chain.block,
            every=spread(prod(self.names[self.layouts[chain.start][0]]), 0, self.limit)[1],
        )
        # Infinities do not survive in all readers of text, but do in binary.
        node.attribute.extend([helper.make_attribute("least", chain.least), helper.make_attribute("most", chain.most)])
        return node


@lru_cache(maxsize=1)
def block_of() -> int:
    """Channels of a block of the blocked layout on this processor, 0 if ONNX Runtime has none for it.

    It is the number to which ONNX Runtime pads a convolution that has a single output channel.
    """
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, 8, 8])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 1, 8, 8])
    filters = numpy_helper.from_array(np.ones((1, 3, 1, 1), np.float32), "w")
    node = helper.make_node("Conv", ["x", "w"], ["y"], kernel_shape=[1, 1])
    graph = helper.make_graph([node], "probe", [x], [y], [filters])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    with tempfile.TemporaryDirectory(prefix="orinport-") as folder:
        path = Path(folder) / "probe.onnx"
        open_session(model.SerializeToString(), threads=1, optimised_to=path)
        written = onnx.load_from_string(path.read_bytes())
    if not any(each.domain == _BLOCKED and each.op_type == "Conv" for each in written.graph.node):
        return 0
    return int(written.graph.initializer[0].dims[0])
