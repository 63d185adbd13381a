"""Bundles as apps carry them: no sources of kernels, and all else as it was."""

import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from adrenoc.bundle.buckets import open_buckets
from adrenoc.bundle.bundle import Bundle, open_bundle
from adrenoc.bundle.write_bundle import write_app_tar
from adrenoc.cli.main import main
from tests.runtime.programs import Finished, run_case

Execute = Callable[..., Finished]


def _pack(bundle: Bundle, folder: Path) -> Bundle:
    before = {path: path.read_bytes() for path in bundle.root.rglob("*") if path.is_file()}
    tar = folder / f"{bundle.manifest.name}.tar"
    write_app_tar(bundle.root, tar, name=bundle.manifest.name)
    assert {path: path.read_bytes() for path in before} == before
    with tarfile.open(tar) as archive:
        stored = {member.name.partition("/")[2]: member.size for member in archive.getmembers()}
    assert not [name for name in stored if name.endswith(".cl")]
    libraries = [file for file in bundle.manifest.files if file.path.endswith("model.so")]
    assert all(stored[file.path] * 3 < file.bytes for file in libraries)
    assert [path.name for path in folder.iterdir() if path.name.startswith(".app-")] == []
    return open_bundle(tar)  # with digests of all that it lists


def test_a_bundle_runs_as_it_did(bundle, case, runtime, opencl, execute, tmp_path):
    packed = _pack(bundle, tmp_path)
    _, outputs = run_case(execute, runtime.runner, opencl, packed.path, case, tmp_path)
    for name, expected in case.outputs.items():
        assert np.array_equal(outputs[name], expected)


def test_buckets_keep_theirs(shapes, runtime, opencl, execute, tmp_path):
    packed = _pack(shapes, tmp_path)
    assert len(open_buckets(packed)) == len(open_buckets(shapes)) > 1
    execute(runtime.runner, packed.path, "--opencl", opencl, "--repeat", 1)


def test_kernels_for_several_gpus(bundle, case, work, runtime, opencl, execute, tmp_path):
    several = tmp_path / "several.adrenoc"
    words = ["compile", str(work / "two.onnx"), "--device", "host:660,host:750"]
    assert main([*words, "--preset", "fp32", "-o", str(several)]) == 0
    packed = _pack(open_bundle(several), tmp_path)
    _, outputs = run_case(execute, runtime.runner, opencl, packed.path, case, tmp_path)
    for name, expected in case.outputs.items():
        assert np.allclose(outputs[name], expected, rtol=1e-4, atol=1e-4)
