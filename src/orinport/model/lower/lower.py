"""`lower(model)`: the layers that TensorRT's parser makes of a network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orinport.collector import collection_paused
from orinport.model.lower.graph import Lowerer
from orinport.model.lower.network import Network
from orinport.model.lower.version import parser_of

if TYPE_CHECKING:
    from orinport.model.layer import Layer
    from orinport.model.model import Model
    from orinport.targets.version import Version

__all__ = ["lower"]


def lower(model: Model, *, tensorrt: Version) -> tuple[Layer, ...]:
    """The layers that the ONNX parser of TensorRT `tensorrt` makes of `model`, in its order.

    Constant weights of a layer are attributes; constant operands are CONSTANT layers. Layers that compute
    nothing but shapes and other build-time values have outputs that are all `constant`: the builder folds
    them. An operator that only a plugin can run becomes PLUGIN, one that cannot be built UNSUPPORTED.
    """
    net = Network(parser_of(tensorrt), model.graph.opset_imports.get("", 0))
    lowerer = Lowerer(model, net)
    with collection_paused():
        lowerer.run(model.graph)
        return net.finish(lowerer.named)
