"""A tensor's name does not fit into a calibration cache.

## What it checks
Names of tensors that have a scale, where the target reads a calibration cache: a name must not be empty and must not
hold a line end.

## Why it matters
A calibration cache has one line a tensor, so the scale cannot be handed over, and the layers around it run in FP16.

## Example
A tensor whose name was made from a text of several lines.

## What to do
Rename the tensor in the network.

## Fix safety
No rewrite is applied.

## Source
The cache's format: NVIDIA/Deep-Learning-Accelerator-SW, qdq-translator.
"""

from __future__ import annotations

CODE = "Q012"
TITLE = "A tensor's name does not fit into a calibration cache"
