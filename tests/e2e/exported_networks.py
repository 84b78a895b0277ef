"""Networks of today's building blocks, written in PyTorch and exported by its current exporter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable

    import onnx


class Block(nn.Module):
    """A transformer block with normalisation first: attention, then a perceptron with GELU."""

    def __init__(self, width: int, heads: int, approximate: str) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate), nn.Linear(4 * width, width))

    def forward(self, x: Any) -> Any:
        """(N, tokens, width) to the same."""
        n, tokens, width = x.shape
        q, k, v = self.qkv(self.first(x)).reshape(n, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1) * (width // self.heads) ** -0.5).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(n, tokens, width))
        return x + self.mlp(self.second(x))


class VisionTransformer(nn.Module):
    """Patches, one block, the mean of the tokens, a classifier."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 8, 8)
        self.position = nn.Parameter(torch.randn(1, 16, 32) * 0.1)
        self.block = Block(32, 4, approximate)
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 10)

    def forward(self, image: Any) -> Any:
        """(N, 3, 32, 32) to (N, 10)."""
        x = self.patches(image).flatten(2).transpose(1, 2) + self.position
        return self.head(self.norm(self.block(x)).mean(1))


class TextReader(nn.Module):
    """Columns of a feature map read by a recurrent layer, as in text recognition."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 24, (8, 3), 1, (0, 1)))
        self.recurrent = getattr(nn, kind)(24, 16, bidirectional=True, batch_first=True)
        self.head = nn.Linear(32, 11)

    def forward(self, image: Any) -> Any:
        """(N, 3, 16, 32) to (N, 16, 11)."""
        columns = self.features(image).squeeze(2).transpose(1, 2)
        return self.head(self.recurrent(columns)[0])


class UNet(nn.Module):
    """Two levels down and up, with batch normalisation, ConvTranspose and skipped connections."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = self.pair(3, 8), self.pair(8, 16), self.pair(16, 32)
        self.up2, self.up1 = nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 3, 2, 1, 1)
        self.back2, self.back1 = self.pair(32, 16), self.pair(16, 8)
        self.head = nn.Conv2d(8, 2, 1)

    @staticmethod
    def pair(inputs: int, outputs: int) -> nn.Sequential:
        """A convolution, normalised."""
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, 1, 1), nn.BatchNorm2d(outputs), nn.ReLU())

    def forward(self, image: Any) -> Any:
        """(N, 3, 32, 32) to (N, 2, 32, 32)."""
        pool = nn.functional.max_pool2d
        one = self.one(image)
        two = self.two(pool(one, 2))
        three = self.three(pool(two, 2))
        two = self.back2(torch.cat([self.up2(three), two], 1))
        return self.head(self.back1(torch.cat([self.up1(two), one], 1)))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "transformer, erf": (VisionTransformer, (1, 3, 32, 32)),
    "transformer, tanh": (lambda: VisionTransformer("tanh"), (1, 3, 32, 32)),
    "GRU": (lambda: TextReader("GRU"), (1, 3, 16, 32)),
    "LSTM": (lambda: TextReader("LSTM"), (1, 3, 16, 32)),
    "RNN": (lambda: TextReader("RNN"), (1, 3, 16, 32)),
    "U-Net": (UNet, (1, 3, 32, 32)),
}


def exported(name: str) -> tuple[onnx.ModelProto, nn.Module, Any]:
    """The network as ONNX, the module with its statistics set, and an input."""
    torch.manual_seed(0)
    make, shape = NETWORKS[name]
    module = make().eval()
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_(0, 0.3)
            part.running_var.uniform_(0.5, 2)
    image = torch.randn(shape)
    return torch.onnx.export(module, (image,), dynamo=True, verbose=False).model_proto, module, image
