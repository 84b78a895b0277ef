"""Convex groups: against a slow search over all paths, on random graphs."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from orinport.model.layer import DType, Layer, LayerKind, Tensor
from orinport.model.partition import group_positions, sources_of

if TYPE_CHECKING:
    from collections.abc import Callable


def partition(layers: list[Layer], colour: Callable[[Layer], str | None]) -> list[list[Layer]]:
    groups = group_positions(sources_of(layers), [colour(layer) for layer in layers])
    return [[layers[position] for position in group] for group in groups]


def _layer(index: int, inputs: list[int], colour: str) -> Layer:
    tensors = tuple(Tensor(f"t{i}", (1, 8, 4, 4), DType.FP32) for i in inputs)
    return Layer(
        index,
        f"l{index}",
        LayerKind.ACTIVATION,
        tensors,
        (Tensor(f"t{index}", (1, 8, 4, 4), DType.FP32),),
        (colour,),
    )


@st.composite
def graphs(draw: st.DrawFn) -> list[Layer]:
    layers: list[Layer] = []
    for index in range(draw(st.integers(1, 9))):
        inputs = draw(st.lists(st.integers(0, index - 1), max_size=3, unique=True)) if index else []
        layers.append(_layer(index, inputs, draw(st.sampled_from("ab"))))
    return layers


def _reachable(layers: list[Layer]) -> dict[int, set[int]]:
    """Indices that each layer depends on, itself excluded."""
    before: dict[int, set[int]] = {}
    for layer in layers:
        direct = {int(t.name[1:]) for t in layer.inputs}
        before[layer.index] = direct.union(*(before[i] for i in direct))
    return before


@settings(max_examples=300, deadline=None)
@given(graphs())
def test_groups_have_one_colour_and_no_way_out_and_back(layers: list[Layer]) -> None:
    groups = partition(layers, lambda layer: layer.nodes[0])
    before = _reachable(layers)
    assert sorted(layer.index for group in groups for layer in group) == [layer.index for layer in layers]
    for group in groups:
        inside = {layer.index for layer in group}
        assert len({layer.nodes[0] for layer in group}) == 1
        for a, b in combinations(sorted(inside), 2):
            between = {i for i in before[b] if a in before[i]}
            assert between <= inside, "a path leaves the group and comes back"


@settings(max_examples=200, deadline=None)
@given(graphs())
def test_groups_come_in_an_order_in_which_they_can_run(layers: list[Layer]) -> None:
    groups = partition(layers, lambda layer: layer.nodes[0])
    group_of = {layer.index: number for number, group in enumerate(groups) for layer in group}
    edges = {
        (group_of[int(t.name[1:])], group_of[layer.index])
        for layer in layers
        for t in layer.inputs
        if group_of[int(t.name[1:])] != group_of[layer.index]
    }
    assert all(before < after for before, after in edges), "a group comes before one that it waits for"


def test_a_chain_of_one_colour_is_one_group() -> None:
    layers = [_layer(i, [i - 1] if i else [], "a") for i in range(50)]
    assert len(partition(layers, lambda layer: layer.nodes[0])) == 1


def test_layers_without_colour_separate_nothing() -> None:
    layers = [_layer(0, [], "a"), _layer(1, [], "none"), _layer(2, [0, 1], "a")]
    groups = partition(layers, lambda layer: None if layer.nodes[0] == "none" else "a")
    assert [[layer.index for layer in group] for group in groups] == [[0, 2]]


def test_a_detour_over_another_colour_splits() -> None:
    layers = [_layer(0, [], "a"), _layer(1, [0], "b"), _layer(2, [0, 1], "a")]
    groups = partition(layers, lambda layer: layer.nodes[0])
    assert [[layer.index for layer in group] for group in groups] == [[0], [1], [2]]
