"""The operator cases of TVM 0.18, restated in `upstream_v018.py`: graphs and numbers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from adrenoc.clml.patterns import load_table
from tests.clml.documents import expected_nodes
from tests.clml.regions import Emulate, cut, only_document, without_names
from tests.clml.upstream_v018 import COUNTS, TRIALS, Trial, compare

_OFFLOADED = [trial for trial in TRIALS if trial.offloaded]
_REFUSED = [trial for trial in TRIALS if not trial.offloaded]
_trial = pytest.mark.parametrize("trial", _OFFLOADED, ids=lambda trial: trial.id)


def test_every_parameter_set_is_here():
    assert Counter(trial.test for trial in TRIALS) == COUNTS
    assert len({trial.id for trial in TRIALS}) == len(TRIALS)
    # 0.18 has no row for an explicit pad that no convolution takes in, and none of ours alone.
    rows = {trial.case.row for trial in TRIALS}
    assert set(load_table().rows) - rows == {"relu6", "scale_shift", "pad"}


@_trial
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_graph(trial: Trial, dtype: str):
    nodes = without_names(only_document(trial.case.module(), dtype=dtype))
    assert nodes == expected_nodes(trial.case, dtype)


@_trial
def test_numbers(trial: Trial, device: Any, emulate: Emulate):
    emulate(versions=[1, 2, 3, 4, 5])
    compare(trial, device, trial.small or trial.case.inputs)


@pytest.mark.parametrize("trial", _REFUSED, ids=lambda trial: trial.id)
def test_refused(trial: Trial):
    found = cut(trial.case.module())
    assert not found.regions
