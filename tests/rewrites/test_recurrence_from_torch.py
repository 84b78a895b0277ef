"""nn.GRU, nn.LSTM and nn.RNN as PyTorch's current exporter writes them, rewritten, against PyTorch itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from builders import run_onnx
from orinport.rewrites.catalogue.gru_to_conv import REWRITE as GRU
from orinport.rewrites.catalogue.lstm_to_conv import REWRITE as LSTM
from orinport.rewrites.catalogue.rnn_to_conv import REWRITE as RNN
from rewrites.harness import apply_to

pytestmark = pytest.mark.torch

OPTIONS = {
    "one layer": {},
    "batch first": {"batch_first": True},
    "both directions": {"bidirectional": True, "batch_first": True},
    "three layers": {"num_layers": 3},
    "no bias": {"bias": False, "bidirectional": True},
    "everything": {"bidirectional": True, "batch_first": True, "num_layers": 2},
}


def exported(module: Any, inputs: tuple[Any, ...]) -> onnx.ModelProto:
    import torch

    return torch.onnx.export(module.eval(), inputs, dynamo=True, verbose=False).model_proto


@pytest.mark.slow
@pytest.mark.parametrize("states", [False, True], ids=["zeros", "states"])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("kind", ["GRU", "LSTM", "RNN"])
def test_equal_to_torch(kind: str, options: dict[str, Any], batch: int, states: bool) -> None:
    check(kind, options, batch, states=states)


@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_all_at_once(kind: str) -> None:
    check(kind, OPTIONS["everything"], 2, states=True)


def check(kind: str, options: dict[str, Any], batch: int, *, states: bool) -> None:
    import torch

    torch.manual_seed(0)
    module = getattr(torch.nn, kind)(6, 5, **options)
    x = torch.randn((batch, 4, 6) if options.get("batch_first") else (4, batch, 6))
    layers = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    state = torch.randn(layers, batch, 5)
    initial = (state, state * 0.5) if kind == "LSTM" else state
    inputs = (x, initial) if states else (x,)
    proto = exported(module, inputs)
    result, log = apply_to(proto, GRU, LSTM, RNN)
    found = [node.op_type for node in result.ir.graph]
    assert not {"GRU", "LSTM", "RNN"} & set(found), log.refused
    if kind != "RNN":  # the exporter writes RNN out by itself
        assert len(log.applied) == options.get("num_layers", 1)
    with torch.no_grad():
        y, last = module(*inputs)
    want = [y.numpy(), *(each.numpy() for each in (last if kind == "LSTM" else (last,)))]
    given = [x, *(initial if kind == "LSTM" else (initial,))] if states else [x]
    names = [value.name for value in proto.graph.input]
    feeds = {name: each.numpy() for name, each in zip(names, given, strict=True)}
    for expected, have in zip(want, run_onnx(ir.to_proto(result.ir), feeds), strict=True):
        np.testing.assert_allclose(have, expected, rtol=1e-4, atol=1e-5)
