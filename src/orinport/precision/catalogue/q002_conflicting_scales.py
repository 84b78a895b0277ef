"""A tensor has several scales.

## What it checks
Quantisers with different scales on one tensor, and files with two scales of one name.

## Why it matters
The DLA has one scale a tensor. The largest is taken, so that nothing saturates; the finer steps are lost.

## Example
A residual branch whose two readers have quantisers of their own.

## What to do
Share one quantiser between the readers when training or calibrating.

## Fix safety
No rewrite is applied.

## Source
NvInfer.h, setDynamicRange (one range a tensor); NVIDIA/Deep-Learning-Accelerator-SW, qdq-translator.
"""

from __future__ import annotations

CODE = "Q002"
TITLE = "A tensor has several scales"
