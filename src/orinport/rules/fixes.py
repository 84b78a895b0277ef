"""Rewrites that fix findings: their names and how safe they are.

Rules name a rewrite without importing it; a test holds these names against the rewrites that exist.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "AVERAGE_POOL_TO_INCLUSIVE",
    "CONV_TRANSPOSE_TO_UNPADDED",
    "FUSE_SCALE_INTO_CONV",
    "GEMM_TO_CONV",
    "MATMUL_TO_CONV",
    "REDUCE_TO_POOL",
    "REMOVE_IDENTITY",
    "RESIZE_SIZES_TO_SCALES",
    "SOFTMAX_TO_CHANNELS",
    "SPLIT_AVERAGE_POOL",
    "SPLIT_MAX_POOL",
    "WINDOWS_TO_4D",
]

MATMUL_TO_CONV: Final = ("matmul-to-conv", "exact")
GEMM_TO_CONV: Final = ("gemm-to-conv", "exact")
REDUCE_TO_POOL: Final = ("reduce-to-pool", "exact")
RESIZE_SIZES_TO_SCALES: Final = ("resize-sizes-to-scales", "exact")
AVERAGE_POOL_TO_INCLUSIVE: Final = ("average-pool-to-inclusive", "exact")
REMOVE_IDENTITY: Final = ("remove-identity", "exact")
SOFTMAX_TO_CHANNELS: Final = ("softmax-to-channels", "exact")
CONV_TRANSPOSE_TO_UNPADDED: Final = ("conv-transpose-to-unpadded", "exact")
FUSE_SCALE_INTO_CONV: Final = ("fuse-scale-into-conv", "exact")
SPLIT_AVERAGE_POOL: Final = ("split-average-pool", "exact")
SPLIT_MAX_POOL: Final = ("split-max-pool", "exact")
WINDOWS_TO_4D: Final = ("windows-to-4d", "exact")
