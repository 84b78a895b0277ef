"""The whole catalogue on the operator models of the onnx package: nothing breaks, differs or is rolled back."""

from __future__ import annotations

import pytest

from builders import operator_models
from orinport.errors import OrinportError
from orinport.model.load import load
from orinport.rewrites.driver import rewrite_model
from orinport.rewrites.proof import compare_models


@pytest.mark.slow
def test_operator_models() -> None:
    applied: set[str] = set()
    for name, proto in operator_models().items():
        try:
            model = load(proto)
        except OrinportError:
            continue  # dynamic shapes, sequences: not what this test is about
        rewritten, log = rewrite_model(model)
        assert not log.rolled_back, f"{name}: {log.rolled_back[0]}"
        applied |= set(log.counts())
        if not log.applied:
            continue
        try:
            report = compare_models(model, rewritten, cases=1)
        except OrinportError:
            continue  # ONNX Runtime lacks an operator of it
        assert report.equal, f"{name}: {report.rows} after {log.counts()}"
    assert {"merge-shape-movers", "reduce-to-pool", "remove-identity", "softmax-to-channels"} <= applied
