"""DCNv4: the operator, its PyTorch modules, its ONNX forms, the FlashInternImage models.

The reference needs NumPy alone. Names that need PyTorch or ONNX are imported when they are first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from orinport.dcnv4.arguments import DeformAttnArguments, Geometry, offset_mask_width
from orinport.dcnv4.reference import flash_deform_attn_reference, reference
from orinport.errors import MissingExtraError

if TYPE_CHECKING:
    from orinport.dcnv4.modules import DCNv4, FlashDeformAttn
    from orinport.dcnv4.ops import dcnv4, flash_deform_attn

__all__ = [
    "DCNv4",
    "DeformAttnArguments",
    "FlashDeformAttn",
    "Geometry",
    "dcnv4",
    "flash_deform_attn",
    "flash_deform_attn_reference",
    "offset_mask_width",
    "reference",
]

_LAZY = {
    "DCNv4": "orinport.dcnv4.modules",
    "FlashDeformAttn": "orinport.dcnv4.modules",
    "dcnv4": "orinport.dcnv4.ops",
    "flash_deform_attn": "orinport.dcnv4.ops",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        try:
            return getattr(import_module(_LAZY[name]), name)
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise MissingExtraError("torch", "torch", f"orinport.dcnv4.{name}") from error
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
