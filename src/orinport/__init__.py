"""orinport ports neural networks to NVIDIA Orin, on its DLA and its GPU.

`check`, `prepare`, `quantize`, `predict` and `verify` each take a path, bytes, an `onnx.ModelProto` or an onnx_ir
model and return a value; `profile` and `refit` take what a board measured too, `plan_matmul` takes sizes. What a
caller can get wrong is an `OrinportError`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from orinport.lazy import lazily

if TYPE_CHECKING:
    from orinport.api import check, plan_matmul, predict, prepare, profile, quantize, refit, verify
    from orinport.errors import MissingExtraError, OrinportError

__version__ = "0.1.0"

__all__ = [
    "MissingExtraError",
    "OrinportError",
    "__version__",
    "check",
    "plan_matmul",
    "predict",
    "prepare",
    "profile",
    "quantize",
    "refit",
    "verify",
]

_HOME = {
    "MissingExtraError": "orinport.errors",
    "OrinportError": "orinport.errors",
    "check": "orinport.api",
    "plan_matmul": "orinport.api",
    "predict": "orinport.api",
    "prepare": "orinport.api",
    "profile": "orinport.api",
    "quantize": "orinport.api",
    "refit": "orinport.api",
    "verify": "orinport.api",
}

# ONNX Runtime's wheels for Linux send events about their use to Microsoft (1.32.0, its Privacy.md: measured after half
# a minute) unless this is set before it is loaded. orinport uses no network unasked; who wants them sent sets 0.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

__getattr__ = lazily(__name__, _HOME)
