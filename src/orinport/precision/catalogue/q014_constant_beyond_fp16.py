"""FP16 cannot hold a constant.

## What it checks
Kernels, weights, biases, constants of sums and products, and the factors of batch normalisations of layers that the
DLA runs in FP16: elements beyond 65504, constants that become 0 altogether, and elements that are NaN, or infinite
where only a sum may have them. It is a note, not a refusal.

## Why it matters
TensorRT takes the network in FP32 and converts it without a word. What the DLA's compiler makes of a number that FP16
cannot hold is not documented; an infinity or a zero makes the layer's results wrong.

## Example
A mask that adds -3.4e38; a kernel with an element of 1e5; weights of 1e-9.

## What to do
Divide the constant and multiply what comes of it, or the other way round; a mask seldom needs more than -1e4. Or run
the layer on the GPU (`prepare --keep`). `verify --as dla-fp16` shows what an infinity does to the results.

## Fix safety
No rewrite is applied.

## Source
IEEE 754: FP16 ends at 65504, and rounds what is not above 2^-25 to 0.
"""

from __future__ import annotations

CODE = "Q014"
TITLE = "FP16 cannot hold a constant"
