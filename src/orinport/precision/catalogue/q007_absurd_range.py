"""A range makes no sense.

## What it checks
Ranges in a file or of Q/DQ layers that exceed what FP16 can hold or vanish in it, ranges that differ ten thousandfold
across a layer that only hands values on, and calibrated ones too small for a scale in FP32 (1.5e-36).

## Why it matters
One wrong digit in a cache shows only as a loss of accuracy on the board.

## Example
A hexadecimal number read in the wrong byte order.

## What to do
Look at the tensor on real data before trusting the scale.

## Fix safety
No rewrite is applied.

## Source
The range of FP16; the definition of the layers.
"""

from __future__ import annotations

CODE = "Q007"
TITLE = "A range makes no sense"
