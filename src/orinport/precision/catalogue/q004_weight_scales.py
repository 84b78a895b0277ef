"""Weights are quantised by another rule than TensorRT's.

## What it checks
Scales of weights in Q/DQ networks against max |w| / 127 of each output channel, to 1 %.

## Why it matters
A calibration cache holds no weights: TensorRT quantises them by that rule. Weights that were rounded to other steps are
rounded once more.

## Example
ONNX Runtime's static quantiser with per_channel=False.

## What to do
Quantise weights by output channel with their largest magnitude.

## Fix safety
No rewrite is applied.

## Source
NVIDIA/Deep-Learning-Accelerator-SW, qdq-translator.
"""

from __future__ import annotations

CODE = "Q004"
TITLE = "Weights are quantised by another rule than TensorRT's"
