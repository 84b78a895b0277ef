"""A model back to ONNX: copies, protos, files."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import onnx_ir as ir

if TYPE_CHECKING:
    import onnx

    from orinport.model.model import Model

__all__ = ["copy_model", "save", "to_proto"]


def copy_model(model: Model) -> Model:
    """A model with a graph of its own that may be edited; the weights are shared, never copied."""
    return replace(model, ir=model.ir.clone(), _values={})


def to_proto(model: Model) -> onnx.ModelProto:
    """The model as a proto that holds all weights."""
    return ir.to_proto(model.ir)


def save(model: Model, path: str | os.PathLike[str]) -> None:
    """Write the model to `path`."""
    ir.save(model.ir, path)
