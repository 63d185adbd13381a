"""Graphs that `scripts/verify numbers` draws: the same by seed, valid, and judged one by one."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from scripts.verifying.judge_numbers import judge
from scripts.verifying.number_kinds import KINDS, draw_cases


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_draws_valid_graphs_again(kind: str) -> None:
    parts, about = draw_cases(kind, range(3), seed=5)
    model = parts.model()
    onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert len(about) == 3 and len(parts.outputs) >= 3
    assert draw_cases(kind, range(3), seed=5)[0].model() == model


def test_a_planted_wrong_number_is_called_wrong() -> None:
    right = np.linspace(0, 1, 64)
    seen = right.astype(np.float32)
    assert judge(seen, right, np.zeros(64), 1e-2).is_right("mixed")
    seen[7] += 0.02
    assert not judge(seen, right, np.zeros(64), 1e-2).is_right("mixed")
    seen[7] = np.inf
    assert judge(seen, right, np.zeros(64), 1e-2).said
