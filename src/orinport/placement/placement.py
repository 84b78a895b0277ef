"""Where layers run: regions, transitions between them, and the formats at the network's edge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orinport.model.layer import DType, Layer, Tensor

__all__ = ["IOFormat", "Placement", "Region"]


@dataclass(frozen=True, slots=True)
class IOFormat:
    """Element type and memory layout of one network input or output, in trtexec's words."""

    name: str
    dtype: DType
    format: str
    """`chw`, `chw16`, `chw32`, `dla_linear` or `dla_hwc4`."""
    reason: str


@dataclass(frozen=True, slots=True)
class Region:
    """Layers that run as one unit: one DLA loadable, or one run of GPU layers."""

    device: str
    """`dla` or `gpu`."""
    layers: tuple[Layer, ...]
    inputs: tuple[Tensor, ...]
    """Runtime tensors that come from outside, each once."""
    outputs: tuple[Tensor, ...]
    """Tensors that are read outside or are network outputs, each once."""
    core: int = 0
    """The DLA core; 0 on the GPU."""

    @property
    def unit(self) -> str:
        """`dla0`, `dla1` or `gpu`."""
        return f"dla{self.core}" if self.device == "dla" else self.device


@dataclass(frozen=True, slots=True)
class Placement:
    """Regions in order of execution and the formats of the network's inputs and outputs.

    `blocked` layers belong to no region: the network cannot be built.
    """

    regions: tuple[Region, ...]
    inputs: tuple[IOFormat, ...]
    outputs: tuple[IOFormat, ...]
    transitions: int
    """Tensors handed from one device to the other."""
    split: bool = False
    """Every region is an engine of its own, so that they overlap; otherwise one engine runs them in turn."""

    @property
    def loadables(self) -> int:
        """Number of DLA regions."""
        return sum(region.device == "dla" for region in self.regions)

    @property
    def all_dla(self) -> bool:
        """Every layer runs on the DLA, in at least one region."""
        return bool(self.regions) and all(region.device == "dla" for region in self.regions)
