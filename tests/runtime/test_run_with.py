"""Runs that bring their own memory and shapes, options as text, and a device before a model."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from adrenoc.bundle.bundle import Bundle
from adrenoc.native.android.runtime_build import Runtime
from tests.runtime.programs import Case, Finished, compile_against, read_printed

Execute = Callable[..., Finished]


@pytest.fixture(scope="module")
def program(runtime: Runtime, work: Path) -> Path:
    return compile_against(runtime, "run_with_program.cc", work / "run_with", "-ldl")


def test_numbers_equal_python_and_threads_share_a_model(
    program: Path,
    bundle: Bundle,
    case: Case,
    opencl: str,
    execute: Execute,
    work: Path,
    tmp_path: Path,
) -> None:
    command = [program, "numbers", bundle.path, opencl, work / "cache", *case.inputs_of(bundle)]
    assert read_printed(execute, command, tmp_path) == case.bytes_of(bundle)


def test_shapes_of_a_run_choose_nothing(
    program: Path, shapes: Bundle, opencl: str, execute: Execute, work: Path
) -> None:
    execute(program, "shapes", shapes.path, opencl, work / "shapes-cache")


def test_a_deadline_and_a_cancellation_end_one_run(
    program: Path, long_chain: Bundle, opencl: str, execute: Execute, work: Path
) -> None:
    execute(program, "ends", long_chain.path, opencl, work / "cancel-cache")


def test_options_as_text_and_what_the_cpu_cannot_run(
    program: Path, bundle: Bundle, opencl: str, execute: Execute, work: Path
) -> None:
    execute(program, "options", bundle.path, opencl, work / "cache")


@pytest.mark.parametrize("form", ["folder", "tar"])
def test_bundles_are_described_without_a_device(
    form: str, program: Path, shapes: Bundle, phone_bundle: Bundle, execute: Execute, work: Path
) -> None:
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
