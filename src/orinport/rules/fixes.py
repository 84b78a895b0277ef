"""Rewrites that fix findings: their names and how safe they are.

Rules name a rewrite without importing it; a test holds these names against the rewrites that exist.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "AVERAGE_POOL_TO_INCLUSIVE",
    "BROADCAST_TO_RESIZE",
    "CONV_PADS_TO_CONVS",
    "CONV_PADS_TO_PAD",
    "CONV_SLICES_TO_CONVS",
    "CONV_STRIDE_TO_CHANNELS",
    "CONV_TRANSPOSE_TO_UNPADDED",
    "CUMSUM_TO_CONV",
    "EINSUM_TO_PRODUCT",
    "FUSE_PAD",
    "FUSE_SCALE_INTO_CONV",
    "GEMM_TO_CONV",
    "MATMUL_TO_CONV",
    "MATMUL_TO_ELEMENTWISE",
    "REDUCE_MAX_TO_POOL",
    "REDUCE_TO_CONV",
    "REDUCE_TO_POOL",
    "REMOVE_IDENTITY",
    "RESIZE_SIZES_TO_SCALES",
    "SOFTMAX_TO_CHANNELS",
    "SPLIT_AVERAGE_POOL",
    "SPLIT_CONV_CHANNELS",
    "SPLIT_CONV_KERNEL",
    "SPLIT_MAX_POOL",
    "WINDOWS_TO_4D",
]

AVERAGE_POOL_TO_INCLUSIVE: Final = ("average-pool-to-inclusive", "exact")
BROADCAST_TO_RESIZE: Final = ("broadcast-to-resize", "exact")
CONV_PADS_TO_CONVS: Final = ("conv-pads-to-convs", "tolerance")
CONV_PADS_TO_PAD: Final = ("conv-pads-to-pad", "exact")
CONV_SLICES_TO_CONVS: Final = ("conv-slices-to-convs", "exact")
CONV_STRIDE_TO_CHANNELS: Final = ("conv-stride-to-channels", "exact")
CONV_TRANSPOSE_TO_UNPADDED: Final = ("conv-transpose-to-unpadded", "exact")
CUMSUM_TO_CONV: Final = ("cumsum-to-conv", "exact")
EINSUM_TO_PRODUCT: Final = ("einsum-to-product", "exact")
FUSE_PAD: Final = ("fuse-pad", "exact")
FUSE_SCALE_INTO_CONV: Final = ("fuse-scale-into-conv", "exact")
GEMM_TO_CONV: Final = ("gemm-to-conv", "exact")
MATMUL_TO_CONV: Final = ("matmul-to-conv", "exact")
MATMUL_TO_ELEMENTWISE: Final = ("matmul-to-elementwise", "exact")
REDUCE_MAX_TO_POOL: Final = ("reduce-max-to-pool", "exact")
REDUCE_TO_CONV: Final = ("reduce-to-conv", "exact")
REDUCE_TO_POOL: Final = ("reduce-to-pool", "exact")
REMOVE_IDENTITY: Final = ("remove-identity", "exact")
RESIZE_SIZES_TO_SCALES: Final = ("resize-sizes-to-scales", "exact")
SOFTMAX_TO_CHANNELS: Final = ("softmax-to-channels", "exact")
SPLIT_AVERAGE_POOL: Final = ("split-average-pool", "exact")
SPLIT_CONV_CHANNELS: Final = ("split-conv-channels", "exact")
SPLIT_CONV_KERNEL: Final = ("split-conv-kernel", "exact")
SPLIT_MAX_POOL: Final = ("split-max-pool", "exact")
WINDOWS_TO_4D: Final = ("windows-to-4d", "exact")
