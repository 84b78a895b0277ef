"""The placement search: equal to brute force on small graphs, good and fast on large ones."""

from __future__ import annotations

import time
from itertools import product

import numpy as np
import pytest

from orinport.model.layer import Layer, LayerKind
from orinport.placement.search import EXACT, Costs, choose_devices, placement_us
from random_graphs import costs, graph
from values import layer


def brute_force(layers: list[Layer], may_dla: set[int], given: Costs, fixed: dict[int, str]) -> float:
    free = [each.index for each in layers if each.index in may_dla and each.index not in fixed]
    best = float("inf")
    for choice in product(("dla", "gpu"), repeat=len(free)):
        device = {each.index: "gpu" for each in layers}
        device |= {index: fixed[index] for index in fixed if index in may_dla}
        device |= dict(zip(free, choice, strict=True))
        best = min(best, placement_us(layers, device, given))
    return best


def check_seed(seed: int) -> None:
    rng = np.random.default_rng(seed)
    number = int(rng.integers(1, 10 if seed % 10 else 13))
    layers = graph(rng, number)
    given = costs(rng, number, int(rng.choice([1, 2, 16])))
    may_dla = {i for i in range(number) if rng.random() < 0.8}
    fixed = {i: str(rng.choice(["dla", "gpu"])) for i in range(number) if rng.random() < 0.1}
    device = choose_devices(layers, may_dla, given, fixed)
    assert placement_us(layers, device, given) == pytest.approx(brute_force(layers, may_dla, given, fixed))
    assert all(device[i] == "gpu" for i in range(number) if i not in may_dla)
    assert all(device[i] == on for i, on in fixed.items() if i in may_dla)


@pytest.mark.parametrize("start", range(0, 100, 20))
def test_equals_brute_force(start: int) -> None:
    for seed in range(start, start + 20):
        check_seed(seed)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(100, 500, 50))
def test_equals_brute_force_on_many_graphs(start: int) -> None:
    for seed in range(start, start + 50):
        check_seed(seed)


def test_improves_and_keeps_the_limit_on_large_graphs() -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        layers = graph(rng, 60)
        given = costs(rng, 60, 4)
        may_dla = {i for i in range(60) if rng.random() < 0.8}
        assert len(may_dla) > EXACT
        device = choose_devices(layers, may_dla, given)
        us = placement_us(layers, device, given)
        assert us < float("inf")
        assert us <= placement_us(layers, dict.fromkeys(range(60), "gpu"), given)


@pytest.mark.parametrize("random", [False, True])
def test_five_thousand_layers_in_time(random: bool) -> None:
    rng = np.random.default_rng(0)
    chain = [layer(i, LayerKind.ACTIVATION, f"t{i}", f"t{i + 1}") for i in range(5000)]
    layers = graph(rng, 5000) if random else chain
    given = costs(rng, 5001)
    may_dla = {i for i in range(5000) if i % 100}
    start = time.process_time()
    device = choose_devices(layers, may_dla, given)
    assert time.process_time() - start < 5
    assert placement_us(layers, device, given) < float("inf")


def test_a_small_island_goes_to_the_gpu() -> None:
    layers = [layer(i, LayerKind.ACTIVATION, f"t{i}", f"t{i + 1}") for i in range(20)]
    given = Costs(dict.fromkeys(range(20), 5.0), dict.fromkeys(range(20), 8.0), 65.0, {}, 16)
    device = choose_devices(layers, {*range(9), 10, *range(12, 20)}, given)
    assert device[10] == "gpu"
