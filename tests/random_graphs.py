"""Random networks and their costs, for the tests of placement."""

from __future__ import annotations

import numpy as np

from orinport.model.layer import DType, Layer, LayerKind, Tensor
from orinport.placement.graph import Costs


def graph(rng: np.random.Generator, number: int) -> list[Layer]:
    """Layers that read one or two earlier tensors; now and then another batch size."""
    layers = []
    for index in range(number):
        sources = {f"t{i}" for i in rng.integers(0, index, rng.integers(1, 3))} if index else {"x"}
        shape = (2, 8, 4, 4) if rng.random() < 0.1 else (1, 16, 4, 4)
        layers.append(
            Layer(
                index,
                f"l{index}",
                LayerKind.ACTIVATION,
                tuple(Tensor(name, (1, 16, 4, 4), DType.FP32) for name in sorted(sources)),
                (Tensor(f"t{index}", shape, DType.FP32),),
                (f"l{index}",),
            )
        )
    return layers


def costs(rng: np.random.Generator, number: int, loadables: int = 16) -> Costs:
    return Costs(
        dla={i: float(rng.uniform(1, 40)) for i in range(number)},
        gpu={i: float(rng.uniform(1, 80)) for i in range(number)},
        launch=float(rng.uniform(5, 70)),
        transfer={f"t{i}": float(rng.uniform(0, 20)) for i in range(number)},
        loadables=loadables,
    )
