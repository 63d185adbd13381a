"""A decoder by onnxruntime-genai, as its wheel is."""

import sys

import pytest

from adrenoc.base.errors import DependencyError
from adrenoc.bundle.bundle import TOKENIZER
from adrenoc.cli.main import main
from adrenoc.native.android.runtime_build import build_runtime
from tests.host.decoder_bundles import DecoderShape, write_decoder, write_tokenizer
from tests.runtime.programs import HERE

pytest.importorskip("onnxruntime_genai")

SHAPE = DecoderShape()


def test_tokens_are_those_of_the_cpu(runtime, device, execute, tmp_path):
    """Also when a generator goes back, and when another one follows."""
    try:
        inside = build_runtime(onnxruntime=True)
    except DependencyError as error:
        pytest.skip(f"{error.message} ({error.hint})")
    model = write_decoder(tmp_path, SHAPE)
    write_tokenizer(tmp_path / TOKENIZER, SHAPE.vocabulary)
    words = ["compile", str(model), "--device", "host", "--preset", "fp32", "--onnxruntime"]
    assert main([*words, "--prefill", "4", "-o", str(tmp_path / "d.adrenoc")]) == 0
    command = [HERE / "genai_program.py", inside.provider, tmp_path, "d_ctx.onnx", 20, 3, 5, 7, 11]
    told = execute(sys.executable, *command).json()
    assert told["made"] == told["cpu"] == told["second"]
    assert len(told["made"]) == 20
    assert told["again"] == told["made"][4:]
