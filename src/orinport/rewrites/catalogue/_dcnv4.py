"""The DCNv4 nodes of NVIDIA's plugins, as far as rewrites look at them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orinport.rewrites.rewrite import Refusal

if TYPE_CHECKING:
    import onnx_ir as ir

    from orinport.rewrites.context import RewriteContext

__all__ = ["DOMAIN", "FUSED", "PLAIN", "channels_of", "why_not_joined"]

DOMAIN = "custom_op"
PLAIN = "DCNv4_Plugin"
FUSED = "DCNv4FuseOffset_Plugin"

_DEFAULTS = {"kh": 3, "kw": 3, "sh": 1, "sw": 1, "ph": 1, "pw": 1, "dh": 1, "dw": 1}
"""What attributes are that are left out, as in the plugins."""


def channels_of(node: ir.Node, context: RewriteContext) -> int | Refusal:
    """C = G*D, or what is wrong with the node's attributes."""
    for name in ("group", "group_channels"):
        number = context.attribute(node, name)
        if not isinstance(number, int):
            return Refusal(f"it lacks the attribute {name!r}" if number is None else f"{name!r} is no whole number")
    channels: Any = context.attribute(node, "group") * context.attribute(node, "group_channels")
    return int(channels) if channels > 0 else Refusal(f"it has {channels} channels")


def why_not_joined(node: ir.Node, context: RewriteContext) -> Refusal | None:
    """Value and offsets lie in one tensor only if input and output pixels correspond: stride 1, size kept."""
    for kernel, stride, pad, dilation in (("kh", "sh", "ph", "dh"), ("kw", "sw", "pw", "dw")):
        k, s, p, d = (context.attribute(node, name, _DEFAULTS[name]) for name in (kernel, stride, pad, dilation))
        if s != 1 or 2 * p != d * (k - 1):
            return Refusal(
                f"stride {s} and padding {p} with a kernel of {k} change the size, so value and offsets do not belong "
                "to the same pixels"
            )
    return None
