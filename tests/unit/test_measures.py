"""The measures themselves: the work of a launch is what its kernel's text does."""

import re

import numpy as np
import pytest

from adrenoc.lab.calibrate.measure import HostOperation, MicroKernel
from adrenoc.lab.calibrate.measures import numbers
from adrenoc.lab.calibrate.measures.rates import chain
from adrenoc.lab.calibrate.session import MEASURES
from tests.unit.planted_device import BY_NAME, DEVICE


def test_names_of_measures_are_of_one_form_and_differ():
    names = [measure.name for measure in MEASURES]
    assert len(set(names)) == len(names)
    assert all(measure.title and measure.title[0].islower() for measure in MEASURES)
    for measure in MEASURES:
        if not measure.lacks(DEVICE):
            for probe in measure.kernels(DEVICE, 1):
                if isinstance(probe.kernel, HostOperation):
                    assert "operation" in probe.kernel.words
                    continue
                assert "__kernel void probe(" in probe.kernel.source
                assert probe.kernel.arguments[-1].value is None
                for threads, group in zip(probe.kernel.threads, probe.kernel.group, strict=True):
                    assert threads % group == 0


def test_a_chain_goes_through_all():
    following, at, seen = chain(100), 0, set()
    for _ in range(100):
        seen.add(at)
        at = int(following[at])
    assert (len(seen), at) == (100, 0)


@pytest.mark.parametrize(
    ("stored", "word"),
    [
        (numbers.TIES.astype(np.float16), "to the nearest, ties to even"),
        (np.array([1, 1 + 2**-10, -1, 1], np.float16), "towards zero"),
        (np.array([1, 2, 3, 4], np.float16), "in a way that no rule describes: 1, 2, 3, 4"),
    ],
)
def test_rounding_is_told_by_what_came_out(stored, word):
    assert numbers.rounding(stored)[1] == word


def _times(kernel: MicroKernel | HostOperation) -> int:
    """How often its loop runs, in all threads."""
    assert isinstance(kernel, MicroKernel)
    (iterations,) = [t.value[0] for t in kernel.arguments if t.shape == (4,) and t.dtype == "int32"]
    width, height, depth = kernel.threads
    return int(iterations) * width * height * depth


@pytest.mark.parametrize(
    ("name", "words", "each"),
    [
        ("mad.float", " = mad(", 1),
        ("mad.float4", " = mad(", 4),
        ("mad.half", " = mad(", 1),
        ("mad.half4", " = mad(", 4),
        ("texel.half4.cached", "read_imagef(", 1),
        ("texel.float4.cached", "read_imagef(", 1),
        ("local.half4", "^= kept[", 1),
        ("local.float4", "+= kept[", 1),
        ("buffer.thread", "sum += data[", 16),
    ],
)
def test_the_work_of_a_launch_is_what_its_text_does(name, words, each):
    for scale in (1, 5):
        for probe in BY_NAME[name].kernels(DEVICE, scale):
            written = probe.kernel.source.count(words)
            assert written > 0
            assert probe.work == written * each * _times(probe.kernel)


def test_memory_counts_what_is_read():
    write, read = BY_NAME["memory.read"].kernels(DEVICE, 1)
    assert write.kernel.arguments[-1] == read.kernel.arguments[0]  # what is read was written
    (words,) = re.findall(r"i < (\d+)u", read.kernel.source)
    assert read.work == 16 * int(words) == 32 << 20
