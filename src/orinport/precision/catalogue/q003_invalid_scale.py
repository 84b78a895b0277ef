"""A scale is not finite and positive.

## What it checks
Scales that are NaN, infinite, zero or negative, also after rounding to the type in which they are written.

## Why it matters
Such a scale makes every value of the tensor wrong. It is left out, and the tensor counts as one without a scale.
Constants with such a scale keep the values that the network computes with: NaN, zeros or the opposite sign. A scale
of zero on zeros is not told, since it changes nothing.

## Example
A Sigmoid's input scale worked out from an output scale of more than 1/127.

## What to do
Calibrate the tensor again.

## Fix safety
No rewrite is applied.

## Source
The definition of QuantizeLinear in ONNX; NVIDIA/Deep-Learning-Accelerator-SW, qdq-translator.
"""

from __future__ import annotations

CODE = "Q003"
TITLE = "A scale is not finite and positive"
