"""A tensor held NaN or infinities.

## What it checks
Elements that are NaN or infinite while calibrating with finite data.

## Why it matters
They are left out of the scale; in INT8 they would saturate, in FP16 they spread.

## Example
A logarithm of zero; masks of -inf.

## What to do
Find out where the network overflows, and give it the data that it was trained on.

## Fix safety
No rewrite is applied.

## Source
Measured on the given data.
"""

from __future__ import annotations

CODE = "Q009"
TITLE = "A tensor held NaN or infinities"
