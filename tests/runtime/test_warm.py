"""Built kernels: kept, found, refused when they are damaged or foreign, put into bundles."""

import hashlib
import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from adrenoc.bundle.buckets import open_buckets
from adrenoc.bundle.bundle import PROGRAMS, Bundle, open_bundle
from adrenoc.device.result import ProgramOptions, RunResult
from adrenoc.device.run import run_bundle
from tests.commands import ask, run_program
from tests.runtime.programs import Case
from tests.runtime.servers import native_server
from tests.runtime.test_damage import CACHE_READERS, build_with_readers


def _run(bundle: Bundle, case: Case, folder: Path, **options: bool) -> RunResult:
    programs = ProgramOptions(folder=str(folder), **options)
    result = run_bundle(bundle, inputs=case.arrays, repeat=1, warmup=0, programs=programs)
    case.check(result.outputs)
    return result


def _counts(result: RunResult) -> tuple[int, int, int]:
    return result.programs.hits, result.programs.misses, result.programs.damaged


def test_kernels_are_built_once(bundle, case, opencl, tmp_path):
    count = len(bundle.manifest.kernels)
    assert _counts(_run(bundle, case, tmp_path / "p")) == (0, count, 0)
    assert _counts(_run(bundle, case, tmp_path / "p")) == (count, 0, 0)
    assert _counts(run_bundle(bundle, inputs=case.arrays, repeat=1)) == (0, count, 0)


def test_damaged_and_foreign_entries_are_built_anew(bundle, case, opencl, tmp_path):
    count = len(bundle.manifest.kernels)
    folder = tmp_path / "p"
    _run(bundle, case, folder)
    (entry,) = folder.iterdir()
    whole = entry.read_bytes()
    head, name, _, driver, body = whole.split(b"\n", 4)
    foreign = b"another driver\n" + body
    broken = driver + b"\n" + body[: len(body) // 2]
    for content in (
        b"",
        whole[:-1],
        b"\n".join((head, name, hashlib.sha256(foreign).hexdigest().encode(), foreign)),
        # Well-formed, and no kernels in it: the loader has the last word.
        b"\n".join((head, name, hashlib.sha256(broken).hexdigest().encode(), broken)),
    ):
        entry.write_bytes(content)
        assert _counts(_run(bundle, case, folder)) == (0, count, count)
        assert _counts(_run(bundle, case, folder)) == (count, 0, 0)


@pytest.mark.parametrize("form", ["folder", "tar"])
def test_a_bundle_brings_its_kernels(form, bundle, case, runner, tmp_path):
    if form == "folder":
        copy = shutil.copytree(bundle.root, tmp_path / "copy.adrenoc")
    else:
        copy = shutil.copy(bundle.path.with_suffix(".tar"), tmp_path / "copy.tar")
    told = ask("device", "warm", copy, "--embed")
    opened = open_bundle(Path(copy))
    assert [f"{PROGRAMS}/{name}" for name in told["embedded"]] == [
        entry.path for entry in opened.manifest.files if entry.path.startswith(PROGRAMS)
    ]
    count = len(bundle.manifest.kernels)
    assert _counts(_run(opened, case, tmp_path / "empty")) == (count, 0, 0)
    native = runner(copy).json()
    assert (native["cache_hits"], native["cache_misses"]) == (count, 0)
    (file,) = (opened.root / PROGRAMS).iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    damaged = replace(opened)  # its digests were checked when it was opened
    assert _counts(_run(damaged, case, tmp_path / "empty2")) == (0, count, count)


def test_all_buckets_bring_their_kernels(shapes, runner, tmp_path):
    copy = Path(shutil.copytree(shapes.root, tmp_path / "copy.adrenoc"))
    told = ask("device", "warm", copy, "--embed")
    opened = open_bundle(copy)
    counts = [len(bucket.manifest.kernels) for bucket in open_buckets(opened)]
    assert len(counts) == 4
    assert told["programs"]["hits"] + told["programs"]["misses"] == sum(counts)
    native = runner(copy).json()
    assert (native["cache_hits"], native["cache_misses"]) == (sum(counts), 0)
    for bucket, count in zip(open_buckets(opened), counts, strict=True):
        (spec,) = bucket.manifest.inputs
        inputs = {spec.name: np.ones(spec.shape, spec.dtype)}
        programs = ProgramOptions(folder=str(tmp_path / "empty"))
        result = run_bundle(opened, inputs=inputs, repeat=1, programs=programs)
        assert _counts(result) == (count, 0, 0)


def test_warm_a_server(bundle, runtime, opencl, tmp_path):
    copy = Path(shutil.copytree(bundle.root, tmp_path / "copy.adrenoc"))
    count = len(bundle.manifest.kernels)
    with native_server(runtime, opencl, "--store", str(tmp_path / "store")) as (_, port):
        where = ["--on", f"127.0.0.1:{port}"]
        told = ask("device", "warm", copy, *where, "--embed")
        assert (told["programs"]["misses"], len(told["embedded"])) == (count, 1)
        ran = ask("run", copy, *where, "--repeat", "1")
    assert ran["programs"]["hits"] == count
    # Nothing but the constants: the library was sent by `warm`.
    assert ran["notes"][-1].startswith("0.0 MB were sent")


# What CL_DRIVER_VERSION says on phones: build, change, date, and the branch that it was built from.
def _driver(date: str, branch: str = "") -> str:
    return (
        f"OpenCL 2.0 QUALCOMM build: commit #3dad7f8ed7 changeid #I593c16c433 Date: {date} Fri "
        f"Local Branch:  Remote Branch: {branch} Reconstruct Branch: "
    )


@pytest.fixture(scope="module")
def driver_rule(work) -> Path:
    return build_with_readers("driver_rule.cc", work, CACHE_READERS)


@pytest.mark.parametrize(
    ("rule", "now", "then", "fits"),
    [
        ("same", _driver("10/01/21"), _driver("10/01/21"), True),
        ("same", _driver("10/02/21"), _driver("10/01/21"), False),
        ("qualcomm", _driver("10/02/21"), _driver("10/01/21"), True),
        ("qualcomm", _driver("01/02/22"), _driver("12/31/21"), True),  # years go first
        ("qualcomm", _driver("09/30/21"), _driver("10/01/21"), False),
        ("qualcomm", _driver("09/30/21", "tags/A"), _driver("10/01/21", "tags/A"), True),
        ("qualcomm", _driver("09/30/21", "tags/A"), _driver("10/01/21", "tags/B"), False),
        ("qualcomm", "OpenCL 3.0 PoCL 3.1", "OpenCL 3.0 PoCL 3.0", False),
        ("qualcomm", _driver("10/02/21"), "OpenCL 3.0 PoCL 3.0 Date: 10/01/21", False),
        ("qualcomm", _driver("today"), _driver("10/01/21"), False),
    ],
)
def test_the_rule_for_qualcomm_drivers(rule, now, then, fits, driver_rule, execute, tmp_path):
    said = execute(driver_rule, rule, now, then, tmp_path / "cache").out.strip()
    assert said == ("fits" if fits else "does not")


SOMEBODY = 4711
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture(scope="module")
def tried(tmp_path_factory) -> Callable[[Path, str], str]:
    program = build_with_readers("cache_owner.cc", tmp_path_factory.mktemp("owner"), CACHE_READERS)

    def run(folder: Path, deed: str) -> str:
        umask = os.umask(0)
        try:
            done = run_program([program, folder, deed], check=True)
        finally:
            os.umask(umask)
        return done.stdout.strip()

    return run


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_made_is_this_users_alone(tried, tmp_path):
    """Whatever the mask of new files is."""
    folder = tmp_path / "cache"
    assert tried(folder, "store") == "kept"
    (file,) = folder.iterdir()
    assert (_mode(folder), _mode(file)) == (0o700, 0o600)
    assert tried(folder, "find") == "found"


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_to_is_not_used(tried, tmp_path, mode):
    folder = tmp_path / "cache"
    tried(folder, "store")
    (file,) = folder.iterdir()
    file.chmod(mode)
    assert tried(folder, "find") == "not found"
    assert tried(folder, "store") == "kept"  # in its place
    assert tried(folder, "find") == "found"


def test_a_folder_of_ours_is_closed(tried, tmp_path):
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(0o777)
    assert tried(folder, "store") == "kept"
    assert _mode(folder) == 0o775


@needs_root
def test_a_folder_of_somebody_else_is_left_alone(tried, tmp_path):
    folder = tmp_path / "cache"
    tried(folder, "store")
    os.chown(folder, SOMEBODY, SOMEBODY)
    assert tried(folder, "find") == "not found"
    said = f"{folder} belongs to another user (number {SOMEBODY})"
    assert tried(folder, "store") == said
    assert len(list(folder.iterdir())) == 1


@needs_root
def test_a_file_of_somebody_else_is_not_used(tried, tmp_path):
    folder = tmp_path / "cache"
    tried(folder, "store")
    (file,) = folder.iterdir()
    os.chown(file, SOMEBODY, SOMEBODY)
    assert tried(folder, "find") == "not found"
