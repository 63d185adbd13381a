"""A budget of the device's memory over models: who is evicted comes back, and is right."""

from collections.abc import Callable
from typing import Any

import pytest

from adrenoc.bundle.bundle import Bundle
from tests.host.decoder_bundles import DecoderShape, make_decoder_bundle, write_decoder
from tests.runtime.programs import Finished, compile_against

Execute = Callable[..., Finished]

TIMES = 40


@pytest.fixture(scope="module")
def decoder(device: Any, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("decoder")
    model = write_decoder(folder, DecoderShape(layers=1, context=40))
    return make_decoder_bundle(model, "fp32")[0]


@pytest.mark.nightly
def test_models_within_a_budget(
    runtime, bundle, shapes, decoder, long_chain, opencl, execute, work, tmp_path
):
    """Two in turn, one too large, a decoder's context, and threads that trim and run."""
    program = compile_against(runtime, "budget_program.cc", tmp_path / "budget")
    paths = (bundle.path, shapes.path, decoder.path, long_chain.path)
    told = execute(program, *paths, opencl, work / "budget-cache", TIMES).json()
    assert told["evictions"] > TIMES
    assert 0 < told["returns"] <= told["evictions"]
    assert told["return_ms"] > 0
