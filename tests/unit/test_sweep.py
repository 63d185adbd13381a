"""How far inputs may be scaled until halves end and float32 does not, in words."""

import numpy as np
import pytest

from adrenoc.check.inputs import Inputs
from adrenoc.check.trial_inputs import SCALES, scale_inputs, tell_range


def test_floats_that_were_drawn_are_scaled() -> None:
    usual = Inputs(x=np.ones(2, np.float32), i=np.ones(2, np.int64), given=np.ones(2, np.float32))
    usual.drawn = frozenset({"x", "i"})
    for scale, one in zip(SCALES, scale_inputs(usual), strict=True):
        assert one["x"].dtype == np.float32
        assert one["x"].tolist() == pytest.approx([scale] * 2)
        assert one["i"].tolist() == one["given"].tolist() == [1, 1]
    usual.drawn = frozenset({"i"})
    assert scale_inputs(usual) == []


def test_what_is_not_finite_here_alone_is_told() -> None:
    finite, lost = {"y": np.ones(2)}, {"y": np.array([1, np.inf])}
    assert tell_range([finite] * 3, [finite] * 3).startswith("finite as float32 is on 0.001 to")
    assert "on 10000 times the usual ones `y`" in tell_range([finite, finite, lost], [finite] * 3)
    assert tell_range([lost] * 3, [lost] * 3).startswith("finite as float32 is")
