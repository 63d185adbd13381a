"""Whole networks for microcontrollers, small: under QEMU every byte is LiteRT's."""

import pytest

from tests.mcu import networks
from tests.mcu.judge import evaluate_and_compare, needs_emulator, run_and_compare

SMALL = {
    "keywords": lambda: networks.keywords(width=16, blocks=2, height=21),
    "wake_words": lambda: networks.wake_words(size=32),
    "images": lambda: networks.images(size=8),
    "anomalies": lambda: networks.anomalies(width=40),
    "recurrent": networks.recurrent,
    "audio": networks.audio,
    "keyword_lstm": networks.keyword_lstm,
}


@pytest.mark.parametrize("name", SMALL)
def test_evaluation_is_the_reference(name):
    evaluate_and_compare(SMALL[name]())


@needs_emulator
@pytest.mark.parametrize(
    "core", ["cortex-m4", pytest.param("cortex-m55", marks=pytest.mark.nightly)]
)
@pytest.mark.parametrize("name", SMALL)
def test_code_is_the_reference(name, core, tmp_path):
    run_and_compare(SMALL[name](), tmp_path / name, core=core)
