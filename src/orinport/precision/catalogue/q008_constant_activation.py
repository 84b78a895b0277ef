"""A tensor is constant on all data.

## What it checks
Tensors that held one value only, or only zeros, in the whole calibration.

## Why it matters
Their range says nothing about other data. A tensor of zeros has no range at all and gets 1/127, or what it is tied to.

## Example
A detector's branch for large objects, calibrated on pictures without any.

## What to do
Calibrate with data that makes this part of the network active.

## Fix safety
No rewrite is applied.

## Source
Measured on the given data.
"""

from __future__ import annotations

CODE = "Q008"
TITLE = "A tensor is constant on all data"
