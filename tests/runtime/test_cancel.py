"""Calls that another thread cancels: by the C API, its wrapper, and on the CPU."""

from collections.abc import Callable
from pathlib import Path

import pytest

from adrenoc.bundle.bundle import Bundle, open_bundle
from adrenoc.cli.main import main
from tests.host.decoder_bundles import DecoderShape, make_decoder_bundle, write_decoder
from tests.mcu import networks
from tests.models import write_stepper
from tests.runtime.programs import Finished, compile_against

Execute = Callable[..., Finished]

STATE = (1, 16, 256, 256)  # so that a run takes a moment


@pytest.fixture(scope="module")
def stepper(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """y = 2 (h / 2 + x), and h becomes h / 2 + x."""
    folder = tmp_path_factory.mktemp("stepper")
    model = write_stepper(folder, STATE)
    return _compile(model, folder / "step.adrenoc", "--state", "h=hn")


def _compile(model: Path, output: Path, *more: str) -> Bundle:
    words = ["compile", str(model), "--device", "host", "--preset", "fp32", *more]
    assert main([*words, "-o", str(output)]) == 0
    return open_bundle(output)


@pytest.mark.nightly
def test_calls_end_soon_and_leave_the_model_right(
    runtime, long_chain, stepper, device, opencl, execute, work, tmp_path
):
    """Whole runs, pieces, threads that race, a state, tokens and prompts."""
    folder = tmp_path / "decoder"
    folder.mkdir()
    decoder = make_decoder_bundle(write_decoder(folder, DecoderShape(layers=1, context=40)), "fp32")
    program = compile_against(runtime, "cancel_program.cc", tmp_path / "cancel")
    paths = (long_chain.path, stepper.path, decoder[0].path)
    told = execute(program, *paths, opencl, work / "cancel-cache").json()
    # A piece is a twentieth of a run; the rest is other processes' time.
    assert told["cancelled_ms"] < told["whole_ms"]


@pytest.mark.nightly
def test_code_for_the_cpu_ends_too(runtime, opencl, execute, work, tmp_path):
    model = tmp_path / "wake.tflite"
    model.write_bytes(networks.wake_words(size=96))
    bundle = tmp_path / "wake.adrenoc"
    words = ["compile", str(model), "--device", "host", "--fallback", "cpu", "-o", str(bundle)]
    assert main(words) == 0
    program = compile_against(runtime, "cancel_on_cpu.cc", tmp_path / "cancel_on_cpu")
    execute(program, bundle, opencl, work / "cancel-cache")
