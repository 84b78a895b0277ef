"""Nodes that repeat: what has the form of a node before it becomes the same layer.

Large networks are made of few different nodes. The operators in `REPEATED` become one layer, and that follows from the
node's form: its attributes, and the shapes and types of what it reads, never its elements or its name. Where such a
node needs more than one layer (an operand to broadcast, a constant), it is lowered by itself each time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from orinport.model.lower.network import Ref

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    import onnx_ir as ir

    from orinport.model.layer import DType, LayerKind
    from orinport.model.lower.network import Inputs, Network, Outputs

__all__ = ["REPEATED", "Forms", "form_of"]

REPEATED = frozenset(
    {
        "Add",
        "AveragePool",
        "Concat",
        "Conv",
        "Div",
        "GlobalAveragePool",
        "GlobalMaxPool",
        "LeakyRelu",
        "MaxPool",
        "Mul",
        "Relu",
        "Sigmoid",
        "Sub",
        "Tanh",
        "Transpose",
    }
)
"""Operators whose lowering looks at nothing but the form."""


class _Made(NamedTuple):
    """The one layer that nodes of a form become."""

    kind: LayerKind
    shape: tuple[int, ...] | None
    dtype: DType
    constant: bool
    attributes: Mapping[str, Any]


class Forms:
    """The forms that one network has shown so far."""

    def __init__(self, net: Network) -> None:
        self.net = net
        self._known: dict[Hashable, _Made] = {}

    def again(self, form: Hashable, inputs: Inputs) -> Outputs | None:
        """The layer of a node whose form is known; None if it is not."""
        made = self._known.get(form)
        if made is None:
            return None
        refs = [operand for operand in inputs if isinstance(operand, Ref)]
        outputs = ((made.shape, made.dtype),)
        return list(self.net.add_layer(made.kind, refs, outputs, made.attributes, constant=made.constant))

    def learn(self, form: Hashable, mark: int, inputs: Inputs, outputs: Outputs) -> None:
        """Remember what the form became: one layer since `mark`, named after its node, that reads all its tensors."""
        refs = [operand for operand in inputs if isinstance(operand, Ref)]
        draft = self.net.only_since(mark)
        if draft is not None and draft.inputs == refs and draft.outputs == outputs:
            (ref,) = draft.outputs
            self._known[form] = _Made(draft.kind, ref.shape, ref.dtype, ref.constant, draft.attributes)


def form_of(node: ir.Node, inputs: Inputs) -> Hashable | None:
    """What the layer of `node` follows from; None if it does not follow from that alone."""
    if node.op_type not in REPEATED:
        return None
    form: list[Hashable] = [node.op_type]
    for operand in inputs:
        if operand is None:
            form.append(None)
        elif not isinstance(operand, Ref):
            form += (operand.shape, operand.dtype)
        elif operand.values is None:
            form += (operand.shape, operand.dtype, operand.constant)
        else:
            return None
    for name, attribute in node.attributes.data.items():  # the dict inside: this is asked for very often
        form += (name, attribute.value)
    return tuple(form)
