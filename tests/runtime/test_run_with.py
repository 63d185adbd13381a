"""Runs that bring their own memory and shapes, options as text, and a device before a model."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from adrenoc.native.android.runtime_build import Runtime
from tests.runtime.programs import Finished, compile_against, read_printed

Execute = Callable[..., Finished]


@pytest.fixture(scope="module")
def program(runtime: Runtime, work: Path) -> Path:
    return compile_against(runtime, "run_with_program.cc", work / "run_with", "-ldl")


def test_numbers_equal_python_and_threads_share_a_model(
    program, bundle, case, opencl, execute, work, tmp_path
):
    command = [program, "numbers", bundle.path, opencl, work / "cache", *case.inputs_of(bundle)]
    assert read_printed(execute, command, tmp_path) == case.bytes_of(bundle)


def test_shapes_of_a_run_choose_nothing(program, shapes, opencl, execute, work):
    execute(program, "shapes", shapes.path, opencl, work / "shapes-cache")


def test_a_deadline_and_a_cancellation_end_one_run(program, long_chain, opencl, execute, work):
    execute(program, "ends", long_chain.path, opencl, work / "cancel-cache")


def test_options_as_text_and_what_the_cpu_cannot_run(program, bundle, opencl, execute, work):
    execute(program, "options", bundle.path, opencl, work / "cache")


@pytest.mark.parametrize("form", ["folder", "tar"])
def test_bundles_are_described_without_a_device(form, program, shapes, phone_bundle, execute, work):
    path = shapes.path if form == "folder" else shapes.path.with_suffix(".tar")
    model = work / "shapes.onnx"
    told, digest = execute(program, "describe", path, model, "-").json()
    assert told["manifest"] == json.loads((shapes.path / "manifest.json").read_text())
    assert told["buckets"] == json.loads((shapes.path / "buckets.json").read_text())
    assert told["devices"] is None
    assert digest == hashlib.sha256(model.read_bytes()).hexdigest()
    assert told["manifest"]["model"]["file_sha256"] == digest
    # Also one for another machine, which cannot be loaded here.
    told, _ = execute(program, "describe", phone_bundle.path, model, "-").json()
    assert told["manifest"]["library"]["machine"] == "aarch64"
    assert told["buckets"] is None
