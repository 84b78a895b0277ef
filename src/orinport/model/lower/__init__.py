"""Lowering: what NVIDIA's ONNX parser makes of a network, layer by layer.

It follows the parser's sources (onnx-tensorrt, branches 8.5-GA, 8.6-GA, 10.1-GA, 10.3-GA and release 10.10)
and, for TensorRT 11, the behaviour of the parser of tensorrt-rtx. What differs between versions is data:
`targets/data/parser.toml`. One file a family of operators; `table.py` says which function lowers what.
"""

from __future__ import annotations

from orinport.model.lower.lower import lower

__all__ = ["lower"]
