"""A tensor on the DLA has no scale.

## What it checks
Every floating-point tensor that a DLA layer reads or writes, against the scales that were found, given, or follow from
others: through layers that keep values, behind Sigmoid, in constants.

## Why it matters
With implicit quantisation a layer with such a tensor runs in FP16, on Orin many times slower for a convolution, or not
on the DLA at all where FP16 is off.

## Example
A Q/DQ network that leaves the output of a convolution before an addition unquantised.

## What to do
Calibrate with data that reaches the layer, or give the scale in a JSON file with --scales.

## Fix safety
No rewrite is applied.

## Source
Row I01 of the catalogue: builder logs of TensorRT 8 to 10.
"""

from __future__ import annotations

CODE = "Q001"
TITLE = "A tensor on the DLA has no scale"
