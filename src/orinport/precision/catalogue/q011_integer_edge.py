"""An input or output was in integers.

## What it checks
Inputs that a DequantizeLinear reads, and outputs that a QuantizeLinear gives.

## Why it matters
Without its Q/DQ layers the network takes or gives floating point: the integer times the scale.

## Example
A network exported for INT8 pictures.

## What to do
Scale the data, or use the INT8 format of the bundle, with which the integers are the same as before.

## Fix safety
No rewrite is applied.

## Source
The definition of QuantizeLinear in ONNX.
"""

from __future__ import annotations

CODE = "Q011"
TITLE = "An input or output was in integers"
