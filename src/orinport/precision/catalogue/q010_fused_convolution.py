"""A convolution has the scale 1.0 to be fused with an addition.

## What it checks
Convolutions in Q/DQ networks without a scale of their own whose only reader is an addition, where the addition's other
operand has one.

## Why it matters
From DLA software 3.13 on the compiler fuses the two in INT8; without the mark TensorRT puts both in FP16. On the GPU
1.0 would round the tensor to whole numbers.

## Example
A residual network trained with quantisers on the inputs of convolutions and on one branch of each addition.

## What to do
Build for the DLA only, or quantise the convolution's output as well.

## Fix safety
No rewrite is applied.

## Source
Row I14: NVIDIA/Deep-Learning-Accelerator-SW, qdq-translator.
"""

from __future__ import annotations

CODE = "Q010"
TITLE = "A convolution has the scale 1.0 to be fused with an addition"
