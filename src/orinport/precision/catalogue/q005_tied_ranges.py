"""Ranges were made equal.

## What it checks
Tensors whose ranges the DLA wants equal: input and output of a pooling, all inputs and the output of a concatenation,
the two inputs of an element-wise operation. The widest range is taken, and ties join.

## Why it matters
A tensor that is much smaller than the ones it is tied to keeps only a few of its 255 steps.

## Example
A Sigmoid, up to 1, multiplied by a tensor up to 20: the Sigmoid keeps 6 positive steps.

## What to do
Train with a shared range, run the layer in FP16, or use --ties except-products, as NVIDIA's own translator does.

## Fix safety
Ranges only grow, so nothing saturates; resolution is lost.

## Source
Rows P05, N04 and E07: NvInfer.h 7.1.3 to 11.1, TensorRT 8.4 and 8.5 Developer Guides.
"""

from __future__ import annotations

CODE = "Q005"
TITLE = "Ranges were made equal"
