"""Scales for tensors that the network does not have.

## What it checks
Names in a calibration cache or JSON file against the tensors of the network.

## Why it matters
TensorRT ignores such lines; if many are unknown the file belongs to another network, or names were changed.

## Example
A cache made before `prepare`, which replaces layers and with them some tensors.

## What to do
Make the scales for this network, or let `prepare` calibrate with --data.

## Fix safety
No rewrite is applied.

## Source
The cache's format: NVIDIA/Deep-Learning-Accelerator-SW, qdq-translator.
"""

from __future__ import annotations

CODE = "Q006"
TITLE = "Scales for tensors that the network does not have"
