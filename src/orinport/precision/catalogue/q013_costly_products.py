"""Equal ranges at the inputs of products cost most of some tensors' resolution.

## What it checks
With `--ties all`, tensors that keep less than a quarter of the resolution that `--ties except-products` would leave
them. The ones that lose most are named.

## Why it matters
A gate between 0 and 1 that is multiplied by a tensor up to 64 keeps 2 of 127 steps. Networks with many gates, such as
recognition of text with squeeze-and-excitation and swish, lose everything that way. The documents want equal ranges at
every element-wise operation; NVIDIA's own translator of Q/DQ networks leaves the inputs of products alone.

## Example
Sigmoid(x) * x with x up to 64: the Sigmoid loses a factor of 64.

## What to do
Prepare with `--ties except-products` too, compare both with `verify --as dla-int8`, and look on a board whether its
results hold. Or compute the named layers in FP16 (`prepare --fp16 NAME`).

## Fix safety
No rewrite is applied.

## Source
Row E07: NvInfer.h 7.1.3 to 11.1. That products may differ: NVIDIA/Deep-Learning-Accelerator-SW, qdq-translator.
"""

from __future__ import annotations

CODE = "Q013"
TITLE = "Equal ranges at products cost most of some tensors' resolution"
