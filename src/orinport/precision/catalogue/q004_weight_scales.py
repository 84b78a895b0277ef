"""Weights are quantised by another rule than TensorRT's.

## What it checks
Scales of weights in Q/DQ networks against max |w| / 127 of each output channel, to 1 %. Where the file has the
weights before quantisation: whether they saturate, and whether a scale is four times too large or more.

## Why it matters
A calibration cache holds no weights: TensorRT quantises them by that rule. Weights that were rounded to other steps are
rounded once more. What saturated or became zero is lost in the given network already, and cannot be brought back.

## Example
ONNX Runtime's static quantiser with per_channel=False; scales of one layer stored with another.

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
