"""What a rewrite may look at beside the node that it is asked about."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from orinport.model.model import display_name as label
from orinport.rewrites.rewrite import Safety
from orinport.targets.catalogue import catalogue_rows, rows_for
from orinport.targets.target import Precision
from orinport.toml import read_toml

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from orinport.targets.target import Target

__all__ = ["MOVERS", "CostLimit", "RewriteContext", "label"]

MOVERS = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Identity", "Cast"})
"""Operators that compute nothing: off the DLA they weigh less than any other."""

MAIN_DOMAINS = ("", "ai.onnx")


@dataclass(frozen=True, slots=True)
class CostLimit:
    """How much one replacement may cost; past it the rewrite is refused with the number."""

    nodes: int = 2048
    """Nodes that one application makes."""
    elements: int = 1 << 24
    """Elements of constants that it makes beyond those that it replaces."""
    macs_factor: float = 64.0
    """Multiply-accumulates of the replacement, relative to the operations of what it replaces."""
    macs: int = 1 << 28
    """Multiply-accumulates that are always affordable."""


class RewriteContext:
    """A network as rewrites see it: constants, consumers, outputs, opset, and what the user consented to.

    Values live in onnx_ir; everything here only reads. `target` is None when the network is rewritten for
    no board in particular.
    """

    def __init__(
        self,
        model: ir.Model,
        *,
        target: Target | None = None,
        precision: Precision = Precision.FP16,
        consent: Collection[Safety] = (Safety.EXACT,),
        cost: CostLimit | None = None,
    ) -> None:
        self.model = model
        self.graph = model.graph
        self.target = target
        self.precision = precision
        self.consent = frozenset(consent)
        self.cost = cost or CostLimit()
        self.assumed_opset: int | None = None
        """Set while nodes for another opset than the network's are built."""
        self.changes = 0
        """How often the graph has changed: what a rewrite has looked up in it holds until the next change."""
        self.memo: dict[Any, Any] = {}
        """What rewrites have looked up, by keys that begin with the rewrite's name."""

    @property
    def opset(self) -> int:
        """Version of the standard operators."""
        if self.assumed_opset is not None:
            return self.assumed_opset
        imports = self.graph.opset_imports
        return imports.get("", imports.get("ai.onnx", 1))

    def standard(self, node: ir.Node) -> bool:
        """The node is one of ONNX's own operators."""
        return node.domain in MAIN_DOMAINS

    def limit(self, row: str, key: str) -> Any:
        """A number of the acceptance catalogue: of the row as it holds on the target, or else of the row at all.

        So a rewrite builds for limits that it does not know itself, e.g. `limit("P02", "max")`.
        """
        return self.limits(row)[key]

    def limits(self, row: str) -> Mapping[str, Any]:
        """All numbers of that row."""
        rows = catalogue_rows() if self.target is None else rows_for(self.target, self.precision)
        return (rows.get(row) or catalogue_rows()[row]).values

    def figure(self, name: str, key: str) -> Any:
        """A number of `targets/data/rewrites.toml`, which rewrites choose shapes by."""
        return _figures()[name][key]

    def constant(self, value: ir.Value | None) -> NDArray[Any] | None:
        """The values of a build-time constant, read-only; None for anything that is known at run time only.

        An initializer that is also a graph input can be overridden by the caller, so it is no constant.
        """
        tensor = self.constant_tensor(value)
        if tensor is None:
            return None
        array: NDArray[np.generic] = tensor.numpy().view()
        array.flags.writeable = False
        return array

    def constant_tensor(self, value: ir.Value | None) -> ir.TensorProtocol | None:
        """The constant's tensor without reading its values."""
        if value is None or value.is_graph_input():
            return None
        if value.const_value is not None:
            return value.const_value
        producer = value.producer()
        if producer is None or producer.op_type != "Constant" or not self.standard(producer):
            return None
        return ir.convenience.get_const_tensor(value)

    def is_constant(self, value: ir.Value | None) -> bool:
        """The value is known at build time."""
        return self.constant_tensor(value) is not None

    def shape(self, value: ir.Value | None) -> tuple[int, ...] | None:
        """The concrete shape, None if any dimension is not known."""
        if value is None:
            return None
        if value.shape is None:
            tensor = self.constant_tensor(value)
            return None if tensor is None else tuple(int(dim) for dim in tensor.shape)  # type: ignore[arg-type]
        if not all(isinstance(dim, int) for dim in value.shape):
            return None
        return tuple(int(dim) for dim in value.shape)  # type: ignore[arg-type]

    def rank(self, value: ir.Value | None) -> int | None:
        """Number of dimensions, None if not known."""
        return None if value is None or value.shape is None else len(value.shape)

    def dtype(self, value: ir.Value | None) -> ir.DataType | None:
        """Element type, None if not known."""
        if value is None:
            return None
        if value.dtype is None:
            tensor = self.constant_tensor(value)
            return None if tensor is None else tensor.dtype
        return value.dtype

    def is_float(self, value: ir.Value | None) -> bool:
        """FP16, BF16, FP32 or FP64."""
        return self.dtype(value) in _FLOATS

    def consumers(self, value: ir.Value) -> tuple[ir.Node, ...]:
        """Nodes that read the value, each once, those inside subgraphs too."""
        return tuple(dict.fromkeys(use.node for use in value.uses()))

    def is_output(self, value: ir.Value) -> bool:
        """The value is an output of the network, or of the subgraph that it belongs to."""
        return value.is_graph_output()

    def only_consumer(self, value: ir.Value) -> ir.Node | None:
        """The one node that reads the value; None if there are several, or it is a graph output."""
        consumers = self.consumers(value)
        if len(consumers) != 1 or self.is_output(value) or consumers[0].graph is not self.graph:
            return None
        return consumers[0]

    def attribute(self, node: ir.Node, name: str, default: Any = None) -> Any:
        """An attribute as a Python value, a list as a tuple."""
        attribute = node.attributes.get(name)
        if attribute is None:
            return default
        value = attribute.value
        if attribute.type == ir.AttributeType.STRING and isinstance(value, bytes):
            return value.decode()
        return tuple(value) if isinstance(value, (list, tuple)) else value

    def input(self, node: ir.Node, index: int) -> ir.Value | None:
        """An input, None if it is left out."""
        return node.inputs[index] if index < len(node.inputs) else None


@cache
def _figures() -> dict[str, Any]:
    return read_toml(resources.files("orinport.targets") / "data" / "rewrites.toml")


_FLOATS = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.FLOAT, ir.DataType.DOUBLE})
