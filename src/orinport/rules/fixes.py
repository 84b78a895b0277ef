"""Rewrites that fix findings: their names and how safe they are.

Rules name a rewrite without importing it; a test holds these names against the rewrites that exist.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "AVERAGE_POOL_TO_INCLUSIVE",
    "GEMM_TO_CONV",
    "MATMUL_TO_CONV",
    "REDUCE_TO_POOL",
    "REMOVE_IDENTITY",
    "RESIZE_SIZES_TO_SCALES",
    "SOFTMAX_TO_CHANNELS",
]

MATMUL_TO_CONV: Final = ("matmul-to-conv", "exact")
GEMM_TO_CONV: Final = ("gemm-to-conv", "exact")
REDUCE_TO_POOL: Final = ("reduce-to-pool", "exact")
RESIZE_SIZES_TO_SCALES: Final = ("resize-sizes-to-scales", "exact")
AVERAGE_POOL_TO_INCLUSIVE: Final = ("average-pool-to-inclusive", "exact")
REMOVE_IDENTITY: Final = ("remove-identity", "exact")
SOFTMAX_TO_CHANNELS: Final = ("softmax-to-channels", "exact")
