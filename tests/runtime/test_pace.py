"""Models that leave the device to others: runs in pieces, and pauses."""

from collections.abc import Callable

import pytest

from adrenoc.bundle.bundle import Bundle, open_bundle
from adrenoc.cli.main import main
from tests.host.decoder_bundles import DecoderShape, make_decoder_bundle, write_decoder
from tests.models import write_conv_chain
from tests.runtime.programs import Finished, compile_against

Execute = Callable[..., Finished]

LAYERS = 6


@pytest.fixture(scope="module")
def decoder(device, tmp_path_factory) -> Bundle:
    folder = tmp_path_factory.mktemp("decoder")
    model = write_decoder(folder, DecoderShape(layers=1, context=40))
    return make_decoder_bundle(model, "fp32")[0]


@pytest.fixture(scope="module")
def chain(tmp_path_factory) -> Bundle:
    """Convolutions one after the other, a kernel each."""
    folder = tmp_path_factory.mktemp("chain")
    model = write_conv_chain(folder, LAYERS, channels=8, side=16, shrink=1)
    output = folder / "chain.adrenoc"
    words = ["compile", str(model), "--device", "host", "--preset", "fp32", "-o", str(output)]
    assert main(words) == 0
    return open_bundle(output)


@pytest.mark.nightly
def test_runs_in_pieces_and_pauses(
    runtime, chain, shapes, decoder, opencl, execute, work, tmp_path
):
    """Each launch by itself, two models in pieces, runs and tokens around pauses."""
    program = compile_against(runtime, "pace_program.cc", tmp_path / "pace")
    paths = (chain.path, shapes.path, decoder.path)
    told = execute(program, *paths, opencl, work / "pace-cache").json()
    assert told["submissions"] == told["launches"] >= LAYERS
    assert told["whole"] == 1
    assert told["gap_ms"] > 0
