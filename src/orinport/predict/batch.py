"""A placed network with more images in one inference."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from orinport.errors import OrinportError

if TYPE_CHECKING:
    from orinport.model.layer import Layer, Tensor
    from orinport.placement.placement import Placement, Region

__all__ = ["batch_of", "with_batch"]


def batch_of(placement: Placement) -> int:
    """Images of one inference: the batch of the first 4-D tensor that enters a region, 1 if there is none."""
    for region in placement.regions:
        for tensor in region.inputs:
            if tensor.rank is not None and tensor.rank > 3:
                return tensor.batch or 1
    return 1


def with_batch(placement: Placement, batch: int) -> Placement:
    """The placement with the first dimension of every runtime tensor grown so that an inference has `batch` images.

    That is what the network would be if it were exported with this batch size and treats the first
    dimension as the batch. Raises OrinportError if `batch` is no multiple of the present one.
    """
    now = batch_of(placement)
    if batch < 1 or batch % now:
        raise OrinportError(f"The network has batch size {now}, which does not divide {batch}.", "Choose a multiple.")
    factor = batch // now
    if factor == 1:
        return placement
    return replace(placement, regions=tuple(_region(region, factor) for region in placement.regions))


def _region(region: Region, factor: int) -> Region:
    return replace(
        region,
        layers=tuple(_layer(layer, factor) for layer in region.layers),
        inputs=tuple(_tensor(tensor, factor) for tensor in region.inputs),
        outputs=tuple(_tensor(tensor, factor) for tensor in region.outputs),
    )


def _layer(layer: Layer, factor: int) -> Layer:
    return replace(
        layer,
        inputs=tuple(_tensor(tensor, factor) for tensor in layer.inputs),
        outputs=tuple(_tensor(tensor, factor) for tensor in layer.outputs),
    )


def _tensor(tensor: Tensor, factor: int) -> Tensor:
    if tensor.constant or not tensor.shape:
        return tensor
    return replace(tensor, shape=(tensor.shape[0] * factor, *tensor.shape[1:]))
