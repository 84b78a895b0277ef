"""Rewrites that fix findings: their names and how safe they are.

Rules name a rewrite without importing it; a test holds these names against the rewrites that exist.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "ACTIVATION_TO_SIGMOID",
    "ATTENTION_TO_PRODUCTS",
    "AVERAGE_POOL_TO_INCLUSIVE",
    "BROADCAST_TO_RESIZE",
    "CLIP_TO_MIN_MAX",
    "CLIP_TO_RELU",
    "COMPARE_TO_CAST",
    "COMPARE_TO_CLIP",
    "CONCAT_TO_CHANNELS",
    "CONV_PADS_TO_CONVS",
    "CONV_PADS_TO_PAD",
    "CONV_SLICES_TO_CONVS",
    "CONV_STRIDE_TO_CHANNELS",
    "CONV_TRANSPOSE_TO_UNPADDED",
    "CUMSUM_TO_CONV",
    "DECONV_TO_PHASES",
    "DIV_TO_MUL",
    "EINSUM_TO_PRODUCT",
    "FUSE_PAD",
    "FUSE_SCALE_INTO_CONV",
    "GATHER_ELEMENTS_TO_SLICES",
    "GATHER_ND_TO_SLICES",
    "GATHER_TO_SLICES",
    "GELU_TO_TANH",
    "GEMM_TO_CONV",
    "HARD_ACTIVATION_TO_CLIP",
    "LAYER_NORM_TO_DIV",
    "LAYER_NORM_TO_POW",
    "LOGIC_TO_ARITHMETIC",
    "LOG_SOFTMAX_TO_SOFTMAX",
    "LP_NORMALIZATION_TO_DIV",
    "MATMUL_TO_CONV",
    "MATMUL_TO_ELEMENTWISE",
    "MEAN_VARIANCE_TO_DIV",
    "MERGE_SLICES",
    "PAD_TO_CONCAT",
    "PAD_VALUE_TO_CONCAT",
    "POW_TO_MUL",
    "REARRANGE_IN_4D",
    "RECIPROCAL_TO_DIV",
    "REDUCE_MAX_TO_POOL",
    "REDUCE_TO_CONV",
    "REDUCE_TO_POOL",
    "REMOVE_IDENTITY",
    "RESHAPE_TO_TRANSPOSE",
    "RESIZE_SIZES_TO_SCALES",
    "ROTARY_TO_SLICES",
    "SCATTER_ND_TO_SLICES",
    "SCATTER_TO_SLICES",
    "SLICE_STEP_TO_CONV",
    "SLICE_TO_4D",
    "SOFTMAX_TO_CHANNELS",
    "SOFTSIGN_TO_DIV",
    "SPLIT_AVERAGE_POOL",
    "SPLIT_CONV_CHANNELS",
    "SPLIT_CONV_KERNEL",
    "SPLIT_MAX_POOL",
    "SQRT_TO_POW",
    "SWISH_TO_SIGMOID",
    "THRESHOLDED_RELU_TO_CLIP",
    "TILE_TO_CONCAT",
    "TOPK_TO_MAX_MIN",
    "TOPK_TO_REDUCE_MAX",
    "WHERE_TO_ARITHMETIC",
    "WHERE_TO_SLICES",
    "WINDOWS_TO_4D",
]

ACTIVATION_TO_SIGMOID: Final = ("activation-to-sigmoid", "tolerance")
ATTENTION_TO_PRODUCTS: Final = ("attention-to-products", "exact")
AVERAGE_POOL_TO_INCLUSIVE: Final = ("average-pool-to-inclusive", "exact")
BROADCAST_TO_RESIZE: Final = ("broadcast-to-resize", "exact")
CLIP_TO_MIN_MAX: Final = ("clip-to-min-max", "exact")
CLIP_TO_RELU: Final = ("clip-to-relu", "tolerance")
COMPARE_TO_CAST: Final = ("compare-to-cast", "exact")
COMPARE_TO_CLIP: Final = ("compare-to-clip", "tolerance")
CONCAT_TO_CHANNELS: Final = ("concat-to-channels", "exact")
CONV_PADS_TO_CONVS: Final = ("conv-pads-to-convs", "tolerance")
CONV_PADS_TO_PAD: Final = ("conv-pads-to-pad", "exact")
CONV_SLICES_TO_CONVS: Final = ("conv-slices-to-convs", "exact")
CONV_STRIDE_TO_CHANNELS: Final = ("conv-stride-to-channels", "exact")
CONV_TRANSPOSE_TO_UNPADDED: Final = ("conv-transpose-to-unpadded", "exact")
CUMSUM_TO_CONV: Final = ("cumsum-to-conv", "exact")
DECONV_TO_PHASES: Final = ("deconv-to-phases", "exact")
DIV_TO_MUL: Final = ("div-to-mul", "exact")
EINSUM_TO_PRODUCT: Final = ("einsum-to-product", "exact")
FUSE_PAD: Final = ("fuse-pad", "exact")
FUSE_SCALE_INTO_CONV: Final = ("fuse-scale-into-conv", "exact")
GATHER_ELEMENTS_TO_SLICES: Final = ("gather-elements-to-slices", "exact")
GATHER_ND_TO_SLICES: Final = ("gather-nd-to-slices", "exact")
GATHER_TO_SLICES: Final = ("gather-to-slices", "exact")
GELU_TO_TANH: Final = ("gelu-to-tanh", "tolerance")
GEMM_TO_CONV: Final = ("gemm-to-conv", "exact")
HARD_ACTIVATION_TO_CLIP: Final = ("hard-activation-to-clip", "exact")
LAYER_NORM_TO_DIV: Final = ("layer-norm-to-div", "tolerance")
LAYER_NORM_TO_POW: Final = ("layer-norm-to-pow", "exact")
LOGIC_TO_ARITHMETIC: Final = ("logic-to-arithmetic", "exact")
LOG_SOFTMAX_TO_SOFTMAX: Final = ("log-softmax-to-softmax", "tolerance")
LP_NORMALIZATION_TO_DIV: Final = ("lp-normalization-to-div", "tolerance")
MATMUL_TO_CONV: Final = ("matmul-to-conv", "exact")
MATMUL_TO_ELEMENTWISE: Final = ("matmul-to-elementwise", "exact")
MEAN_VARIANCE_TO_DIV: Final = ("mean-variance-to-div", "tolerance")
MERGE_SLICES: Final = ("merge-slices", "exact")
PAD_TO_CONCAT: Final = ("pad-to-concat", "exact")
PAD_VALUE_TO_CONCAT: Final = ("pad-value-to-concat", "exact")
POW_TO_MUL: Final = ("pow-to-mul", "exact")
REARRANGE_IN_4D: Final = ("rearrange-in-4d", "exact")
RECIPROCAL_TO_DIV: Final = ("reciprocal-to-div", "exact")
REDUCE_MAX_TO_POOL: Final = ("reduce-max-to-pool", "exact")
REDUCE_TO_CONV: Final = ("reduce-to-conv", "exact")
REDUCE_TO_POOL: Final = ("reduce-to-pool", "exact")
REMOVE_IDENTITY: Final = ("remove-identity", "exact")
RESHAPE_TO_TRANSPOSE: Final = ("reshape-to-transpose", "exact")
RESIZE_SIZES_TO_SCALES: Final = ("resize-sizes-to-scales", "exact")
ROTARY_TO_SLICES: Final = ("rotary-to-slices", "exact")
SCATTER_ND_TO_SLICES: Final = ("scatter-nd-to-slices", "exact")
SCATTER_TO_SLICES: Final = ("scatter-to-slices", "exact")
SLICE_STEP_TO_CONV: Final = ("slice-step-to-conv", "exact")
SLICE_TO_4D: Final = ("slice-to-4d", "exact")
SOFTMAX_TO_CHANNELS: Final = ("softmax-to-channels", "exact")
SOFTSIGN_TO_DIV: Final = ("softsign-to-div", "exact")
SPLIT_AVERAGE_POOL: Final = ("split-average-pool", "exact")
SPLIT_CONV_CHANNELS: Final = ("split-conv-channels", "exact")
SPLIT_CONV_KERNEL: Final = ("split-conv-kernel", "exact")
SPLIT_MAX_POOL: Final = ("split-max-pool", "exact")
SQRT_TO_POW: Final = ("sqrt-to-pow", "tolerance")
THRESHOLDED_RELU_TO_CLIP: Final = ("thresholded-relu-to-clip", "tolerance")
SWISH_TO_SIGMOID: Final = ("swish-to-sigmoid", "exact")
TILE_TO_CONCAT: Final = ("tile-to-concat", "exact")
TOPK_TO_MAX_MIN: Final = ("topk-to-max-min", "exact")
TOPK_TO_REDUCE_MAX: Final = ("topk-to-reduce-max", "exact")
WHERE_TO_ARITHMETIC: Final = ("where-to-arithmetic", "tolerance")
WHERE_TO_SLICES: Final = ("where-to-slices", "exact")
WINDOWS_TO_4D: Final = ("windows-to-4d", "exact")
