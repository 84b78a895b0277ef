"""orinport ports neural networks to NVIDIA Orin, on its DLA and its GPU."""

__version__ = "0.1.0"
