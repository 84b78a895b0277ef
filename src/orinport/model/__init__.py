"""The network: read, checked, with concrete shapes; and what TensorRT's parser makes of it."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from orinport.lazy import lazily

if TYPE_CHECKING:
    from orinport.model.layer import DType, Layer, LayerKind, Tensor
    from orinport.model.load import load
    from orinport.model.lower.lower import lower
    from orinport.model.model import Model
    from orinport.model.save import copy_model, save, to_proto

__all__ = [
    "DType",
    "Layer",
    "LayerKind",
    "Model",
    "Tensor",
    "copy_model",
    "load",
    "lower",
    "save",
    "to_proto",
]

_HOME = {
    "DType": "orinport.model.layer",
    "Layer": "orinport.model.layer",
    "LayerKind": "orinport.model.layer",
    "Model": "orinport.model.model",
    "Tensor": "orinport.model.layer",
    "copy_model": "orinport.model.save",
    "load": "orinport.model.load",
    "lower": "orinport.model.lower.lower",
    "save": "orinport.model.save",
    "to_proto": "orinport.model.save",
}

__getattr__ = lazily(__name__, _HOME)


class _Package(ModuleType):
    """Some functions are called like the module that they live in.

    Importing a submodule makes it an attribute of its package; here the function keeps the name, and the module
    is reached by `from orinport.model.load import ...`.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
