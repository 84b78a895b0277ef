"""FlashInternImage T, S, B and L for image classification (OpenGVLab/DCNv4, classification).

Parameter names are those of the published checkpoints. Feature maps stay (N, H, W, C) from the stem to the head.
"""

# mypy: allow-subclassing-any

from __future__ import annotations

import pickle  # noqa: TID251 - only its error class: weights_only loading reports refused files with it
import warnings
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from orinport.dcnv4.modules import DCNv4
from orinport.errors import OrinportError, first_line
from orinport.words import some

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = [
    "VARIANTS",
    "FlashInternImage",
    "Variant",
    "flash_internimage",
    "load_checkpoint",
    "randomize",
    "variant_name",
]

_EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class Variant:
    """The numbers that tell one FlashInternImage from another (classification/configs)."""

    depths: tuple[int, int, int, int]
    groups: tuple[int, int, int, int]
    channels: int
    offset_scale: float = 1.0
    layer_scale: float | None = None
    post_norm: bool = False
    dw_kernel_size: int | None = None
    output_bias: bool = False
    fc2_bias: bool = False
    size: int = 224


VARIANTS: Mapping[str, Variant] = {
    "flash-internimage-t": Variant((4, 4, 18, 4), (4, 8, 16, 32), 64),
    "flash-internimage-s": Variant((4, 4, 21, 4), (5, 10, 20, 40), 80, 1.0, 1e-5, True, 3),
    "flash-internimage-b": Variant((4, 4, 21, 4), (7, 14, 28, 56), 112, 0.5, 1e-5, True, 3),
    "flash-internimage-l": Variant((5, 5, 22, 5), (10, 20, 40, 80), 160, 2.0, 1e-5, True, 3, True, True, 384),
}


class FlashInternImage(nn.Module):
    """(N, 3, H, W), normalised RGB, to (N, classes) logits. H and W are best multiples of 32."""

    def __init__(self, variant: Variant, classes: int = 1000, drop_path_rate: float = 0.0) -> None:
        super().__init__()
        self.variant = variant
        self.patch_embed = _Stem(variant.channels)
        last = sum(variant.depths) - 1
        rates = [drop_path_rate * block / last for block in range(last + 1)]
        self.levels = nn.ModuleList()
        for level, depth in enumerate(variant.depths):
            first = sum(variant.depths[:level])
            self.levels.append(_Level(variant, level, rates[first : first + depth]))
        width = variant.channels * 8
        self.conv_head = nn.Sequential(
            nn.Conv2d(width, width * 3 // 2, 1, bias=False), nn.Sequential(nn.BatchNorm2d(width * 3 // 2)), nn.GELU()
        )
        self.head = nn.Linear(width * 3 // 2, classes)

    def features(self, images: torch.Tensor) -> list[torch.Tensor]:
        """The four levels' feature maps (N, H, W, C) at strides 4, 8, 16 and 32, before the downsampling."""
        maps = []
        pixels = self.patch_embed(images)
        for level in self.levels:
            pixels = level(pixels)
            maps.append(pixels)
            if level.downsample is not None:
                pixels = level.downsample(pixels)
        return maps

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits, no softmax."""
        last = self.conv_head(self.features(images)[-1].permute(0, 3, 1, 2))
        logits: torch.Tensor = self.head(last.mean((2, 3)))
        return logits


class _ChannelsLast(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.permute(0, 2, 3, 1)


class _ChannelsFirst(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.permute(0, 3, 1, 2)


class _Stem(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.conv1 = nn.Conv2d(3, half, 3, stride=2, padding=1)
        self.norm1 = nn.Sequential(_ChannelsLast(), nn.LayerNorm(half, _EPSILON), _ChannelsFirst())
        self.act = nn.GELU()
        self.conv2 = nn.Conv2d(half, channels, 3, stride=2, padding=1)
        self.norm2 = nn.Sequential(_ChannelsLast(), nn.LayerNorm(channels, _EPSILON))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.norm2(self.conv2(self.act(self.norm1(self.conv1(images)))))


class _Downsample(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1, bias=False)
        self.norm = nn.Sequential(_ChannelsLast(), nn.LayerNorm(2 * channels, _EPSILON))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(pixels.permute(0, 3, 1, 2)))


class _MLP(nn.Module):
    def __init__(self, channels: int, fc2_bias: bool) -> None:
        super().__init__()
        self.fc1 = nn.Linear(channels, 4 * channels)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(4 * channels, channels, bias=fc2_bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(self.act(self.fc1(x)))


class _DropPath(nn.Module):
    """Drops a residual branch of whole images in training, with this probability."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training or self.rate == 0:
            return x
        keep = torch.rand((x.shape[0], *(1 for _ in x.shape[1:])), device=x.device) >= self.rate
        return x * keep.to(x.dtype) / (1 - self.rate)


class _Block(nn.Module):
    def __init__(self, variant: Variant, channels: int, group: int, drop_path_rate: float) -> None:
        super().__init__()
        self.post_norm = variant.post_norm
        self.norm1 = nn.Sequential(nn.LayerNorm(channels, _EPSILON))
        self.dcn = DCNv4(
            channels,
            group=group,
            offset_scale=variant.offset_scale,
            dw_kernel_size=variant.dw_kernel_size,
            output_bias=variant.output_bias,
        )
        self.drop_path = _DropPath(drop_path_rate)
        self.norm2 = nn.Sequential(nn.LayerNorm(channels, _EPSILON))
        self.mlp = _MLP(channels, variant.fc2_bias)
        self.scaled = variant.layer_scale is not None
        if variant.layer_scale is not None:
            self.gamma1 = nn.Parameter(torch.full((channels,), variant.layer_scale))
            self.gamma2 = nn.Parameter(torch.full((channels,), variant.layer_scale))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        mixed = self.norm1(self.dcn(pixels)) if self.post_norm else self.dcn(self.norm1(pixels))
        pixels = pixels + self.drop_path(self.gamma1 * mixed if self.scaled else mixed)
        mixed = self.norm2(self.mlp(pixels)) if self.post_norm else self.mlp(self.norm2(pixels))
        return pixels + self.drop_path(self.gamma2 * mixed if self.scaled else mixed)


class _Level(nn.Module):
    def __init__(self, variant: Variant, level: int, drop_path_rates: list[float]) -> None:
        super().__init__()
        channels = variant.channels * 2**level
        self.blocks = nn.ModuleList(_Block(variant, channels, variant.groups[level], rate) for rate in drop_path_rates)
        if not variant.post_norm:
            self.norm = nn.Sequential(nn.LayerNorm(channels, _EPSILON))
        self.post_norm = variant.post_norm
        self.downsample = _Downsample(channels) if level < len(variant.depths) - 1 else None

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            pixels = block(pixels)
        return pixels if self.post_norm else self.norm(pixels)


def variant_name(name: str) -> str:
    """The key in `VARIANTS` for any usual spelling: `T`, `flash_intern_image_t`, `FlashInternImage-T`."""
    letter = name.lower().replace("_", "-").removeprefix("flash").lstrip("-").removeprefix("intern").lstrip("-")
    key = f"flash-internimage-{letter.removeprefix('image').lstrip('-')}"
    if key not in VARIANTS:
        raise OrinportError(f"There is no model {name!r}.", f"There are: {', '.join(VARIANTS)}.")
    return key


def flash_internimage(
    name: str, *, checkpoint: str | Path | None = None, seed: int = 0, classes: int = 1000
) -> FlashInternImage:
    """The model `name`, in evaluation mode, with a checkpoint's weights or random ones of `seed`.

    With a checkpoint the number of classes is the checkpoint's. Raises OrinportError for an unknown name, and
    for a checkpoint that is unreadable, holds more than tensors, or belongs to another model.
    """
    name = variant_name(name)
    if classes < 1:
        raise OrinportError(f"There must be at least one class, not {classes}.")
    if checkpoint is None:
        model = FlashInternImage(VARIANTS[name], classes)
        randomize(model, seed)
    else:
        state = load_checkpoint(checkpoint)
        model = FlashInternImage(VARIANTS[name], _classes(state, classes))
        _load(model, state, name)
    model.eval()
    return model


def randomize(model: nn.Module, seed: int) -> None:
    """Fill a model with random weights that depend on `seed` alone and keep every part alive.

    A freshly built model has all masks 0 and layer scales of 1e-5, so its operators hardly matter; here offsets
    and masks are of the order of 1, and so are layer scales and normalisations. Offsets depend on the input
    only weakly: with full strength 30 layers of random deformations are chaotic, and amplify rounding errors
    more than ten-thousandfold.
    """
    if not -(2**63) <= seed < 2**64:
        raise OrinportError(f"A seed has 64 bits, and {seed} has more.")
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if not tensor.dtype.is_floating_point:
                continue
            if name.endswith(("running_var", "gamma1", "gamma2")) or (tensor.dim() == 1 and name.endswith("weight")):
                tensor.copy_(torch.rand(tensor.shape, generator=generator) * 0.5 + 0.75)
            elif tensor.dim() == 1:
                spread = 0.6 if name.endswith("offset_mask.bias") else 0.2
                tensor.copy_(torch.randn(tensor.shape, generator=generator) * spread)
            else:
                fan_in = tensor[0].numel()
                strength = 0.25 if name.endswith("offset_mask.weight") else 1.0
                tensor.copy_(torch.randn(tensor.shape, generator=generator) * strength * fan_in**-0.5)


def load_checkpoint(path: str | Path) -> dict[str, torch.Tensor]:
    """The state dict in a file that torch.save wrote; nothing in the file is executed.

    The state dict may lie under `model`, `module` or `state_dict`, and names may start with `module.`.
    Raises OrinportError with what is wrong.
    """
    # Training settings beside the weights become plain dictionaries; PyTorch takes such pairs since 2.7.
    settings = [(OrderedDict, "yacs.config.CfgNode")] if _torch_version() >= (2, 7) else []
    try:
        with torch.serialization.safe_globals(settings), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a damaged file names protocols that there are not
            content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise OrinportError(f"There is no checkpoint {str(path)!r}.") from error
    except pickle.UnpicklingError as error:
        raise OrinportError(
            f"{str(path)!r} is no checkpoint, or holds objects other than tensors, which are not loaded.",
            "Save its state dict alone: torch.save(model.state_dict(), path).",
        ) from error
    except Exception as error:  # PyTorch reads with a machine of its own, which damaged files break anywhere
        reason = first_line(error)
        if not isinstance(error, (OSError, RuntimeError, EOFError, ValueError)):  # such as KeyError: an unknown opcode
            reason = "it is no file that torch.save wrote"
        raise OrinportError(f"The checkpoint {str(path)!r} cannot be read: {reason}") from error
    return _state_dict(content, str(path))


def _torch_version() -> tuple[int, ...]:
    return tuple(int(part) for part in str(torch.__version__).split("+")[0].split(".")[:2])


def _state_dict(content: Any, path: str) -> dict[str, torch.Tensor]:
    for key in ("model", "module", "state_dict"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
            break
    if not isinstance(content, dict) or not all(isinstance(value, torch.Tensor) for value in content.values()):
        raise OrinportError(f"The checkpoint {path!r} holds no state dict (looked under model, module, state_dict).")
    state = {str(name).removeprefix("module."): tensor for name, tensor in content.items()}
    for name, tensor in state.items():
        if (reason := _unusable(tensor)) is not None:
            raise OrinportError(f"The checkpoint {path!r} cannot be used: {name} {reason}.")
    return state


def _unusable(tensor: torch.Tensor) -> str | None:
    """Why a tensor can be no weight; None if it can."""
    if tensor.layout != torch.strided or tensor.is_meta:
        return f"is not dense ({tensor.layout}, on {tensor.device})"
    if tensor.is_complex() or tensor.is_quantized:
        return f"holds {tensor.dtype}, not real numbers"
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        return f"has shape {tuple(tensor.shape)}, more than the file holds data for"
    if tensor.is_floating_point() and not tensor.isfinite().all():
        return "holds values that are not finite"
    return None


def _classes(state: Mapping[str, torch.Tensor], otherwise: int) -> int:
    """The number of classes that the head of a checkpoint has."""
    head = state.get("head.weight")
    if head is None:
        return otherwise
    if head.dim() != 2 or head.numel() == 0:
        raise OrinportError(f"The checkpoint's head.weight has shape {tuple(head.shape)}, not (classes, channels).")
    return int(head.shape[0])


def _load(model: nn.Module, state: Mapping[str, torch.Tensor], name: str) -> None:
    wanted = model.state_dict()
    missing = sorted(key for key in wanted if key not in state)
    unknown = sorted(key for key in state if key not in wanted)
    shapes = sorted(key for key in wanted if key in state and state[key].shape != wanted[key].shape)
    for keys, words in ((missing, "lacks"), (unknown, "has, but the model has not,"), (shapes, "has other shapes for")):
        if keys:
            raise OrinportError(f"The checkpoint does not belong to {name}: it {words} {some(keys)}.")
    model.load_state_dict(state)
