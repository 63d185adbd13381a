"""`adrenoc_verify`: an app asks whether a phone's driver is right, on drivers that are not."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from adrenoc.base.errors import BundleError
from adrenoc.bundle.buckets import open_buckets
from adrenoc.bundle.bundle import PROOF, Bundle, open_bundle
from adrenoc.bundle.manifest import TensorSpec
from adrenoc.cli.main import main
from adrenoc.lab.prove.proof import DrawnInput
from tests.commands import compile_model, refuse
from tests.faulty.driver import A640
from tests.models import graph, write
from tests.runtime.programs import Finished, compile_against, draw, replace_file

pytestmark = pytest.mark.usefixtures("device")

WRONG, UNSUPPORTED, FAILED, DAMAGED = 30, 29, 25, 23
"""Exit codes of the runner: 20 and the status."""
Verify = Callable[..., Finished]


@pytest.fixture(scope="module")
def proven(work) -> Bundle:
    """Two convolutions with borders, and a softmax, with a proof."""
    weights = draw(11, v=(8, 4, 3, 3), w=(8, 8, 3, 3))
    weights["w"] /= 8
    nodes = (
        "b = Conv <pads = [1, 1, 1, 1]>(x, v) c = Conv <pads = [1, 1, 1, 1]>(b, w) "
        "y = Softmax <axis = 1>(c)"
    )
    folder = work / "proven"
    folder.mkdir()
    model = write(graph(nodes, {"x": (1, 4, 9, 7)}, ["c", "y"], weights), folder, "m.onnx")
    output = folder / "m.adrenoc"
    compile_model(model, output, preset="")
    assert main(["prove", str(output), str(model)]) == 0
    return open_bundle(output)


@pytest.fixture
def verify(runner, layer, tmp_path) -> Verify:
    """Verify a bundle on a driver with these orders; what these met is in `log`."""

    def run(
        bundle: Bundle,
        *orders: str,
        expect: int | None = 0,
        cache: Path | None = None,
        driver: str = "",
    ) -> Finished:
        # Of two orders of a kind the layer takes the first.
        given = "\n".join((driver, *A640, f"log|{tmp_path / 'log'}", *orders))
        faulty = {"OPENCL_LAYERS": str(layer), "FAULTY_OPENCL": given}
        kept = ("--cache", cache) if cache else ()
        return runner(bundle.path, "--verify", *kept, expect=expect, **faulty)

    return run


def test_inputs_are_drawn_alike_here_and_there():
    """The first words of splitmix64 from seed 0 and 1234567, as others have published them."""
    spec = TensorSpec(name="x", shape=(2,), dtype="uint64")
    whole = DrawnInput(seed=1234567, low=0, count=2**53, step=1.0)
    words = [6457827717110365317 % 2**53, 3203168211198807973 % 2**53]
    assert whole.draw(spec).tolist() == words


def test_a_right_driver_passes_and_is_remembered(proven, verify, tmp_path):
    cache = tmp_path / "cache"
    first = verify(proven, cache=cache).json()
    assert first["right"] and not first["kept"] and first["runs"] >= 3
    print(f"{first['ms']:.1f} ms")  # a figure for who asks with -s
    # A driver that loses all launches: nothing is launched any more.
    again = verify(proven, "skip||1", cache=cache).json()
    assert again == {"right": True, "wrong": "", "kept": True, "runs": 0, "ms": again["ms"]}
    assert not (tmp_path / "log").exists()


def test_another_driver_is_verified_again(proven, verify, tmp_path):
    cache = tmp_path / "cache"
    newer = "driver|OpenCL 3.0 QUALCOMM build: made here, Compiler E031.99"
    kept = [
        verify(proven, cache=cache, driver=driver).json()["kept"]
        for driver in ("", "", newer, newer, "")
    ]
    assert kept == [False, True, False, True, False]


def test_without_a_cache_folder_it_is_verified_each_time(proven, verify):
    for _ in range(2):
        assert not verify(proven).json()["kept"]


@pytest.mark.parametrize(
    ("order", "part"),
    [
        ("edit||CLK_ADDRESS_CLAMP |CLK_ADDRESS_CLAMP_TO_EDGE ", "the output `c` is wrong"),
        ("edit||write_imagef(|faulty_swap(", "the output `c` is wrong"),
        ("edit|^softmax|exp(|exp2(", "the output `y` is wrong"),
        ("skip|^softmax|1", "the output `y` is wrong"),
        ("skip|^softmax|3", "the output `y` changes from run to run"),
    ],
)
def test_a_wrong_driver_is_found_named_and_remembered(order, part, proven, verify, tmp_path):
    cache = tmp_path / "cache"
    found = verify(proven, order, expect=WRONG, cache=cache)
    said = found.json()["wrong"]
    assert said.startswith("on QUALCOMM Adreno(TM) (driver OpenCL 3.0 QUALCOMM build")
    assert part in said and "element [0, " in said
    assert f"wrong results: {said}" in found.err
    assert (tmp_path / "log").read_text()
    # Nothing goes wrong any more, and nobody tries.
    again = verify(proven, expect=WRONG, cache=cache).json()
    assert again["kept"] and again["runs"] == 0 and again["wrong"] == said


def test_a_driver_that_refuses_is_asked_again(proven, verify, tmp_path):
    cache = tmp_path / "cache"
    for _ in range(3):  # it ends each time, so nothing is counted as hanging
        done = verify(proven, "refuse|^softmax|-5", expect=None, cache=cache)
        assert done.code in (FAILED, FAILED + 1)
        assert "softmax" in done.err
    assert not verify(proven, cache=cache).json()["kept"]


def test_a_proof_that_never_ends_is_tried_twice(proven, verify, tmp_path):
    cache = tmp_path / "cache"
    for _ in range(2):
        assert verify(proven, "crash|^softmax", expect=None, cache=cache).code < 0
    done = verify(proven, expect=FAILED, cache=cache)
    assert "has begun 2 times and never ended" in done.err


def test_what_was_remembered_is_not_believed_if_damaged(proven, verify, tmp_path):
    cache = tmp_path / "cache"
    verify(proven, cache=cache)
    (file,) = cache.glob("*.verdict")
    whole = file.read_bytes()
    for content in (b"", whole[:-1], whole + b"x", whole.replace(b"\ne", b"\nb"), b"\0" * 9):
        file.write_bytes(content)
        assert not verify(proven, cache=cache).json()["kept"]
    assert file.read_bytes() == whole


def test_each_shape_of_a_bundle_is_tried(shapes, verify, work, tmp_path):
    copy = Path(shutil.copytree(shapes.path, tmp_path / "s.adrenoc"))
    assert main(["prove", str(copy), str(work / "shapes.onnx")]) == 0
    proof = json.loads((copy / PROOF).read_text())
    assert [t["bucket"] for t in proof["trials"]] == list(range(len(open_buckets(shapes))))
    assert verify(open_bundle(copy)).json()["runs"] >= 3 * len(proof["trials"])
    # Wrong at one element of the last shape alone.
    values = proof["trials"][-1]["outputs"][0]["values"]
    values[5] += 1e3
    replace_file(copy, PROOF, json.dumps(proof).encode())
    assert "1 of " in verify(open_bundle(copy), expect=WRONG).json()["wrong"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema_version": 2}, "schema version 2"),
        ({"trials": []}, "proves nothing"),
        ({"trials": 3}, "a list"),
        ({"bucket": 4}, "is for bucket 4"),
        ({"inputs": []}, "has 0 inputs"),
        ({"count": 0}, "count of 0"),
        ({"name": "z"}, "is no output of the model"),
        ({"first": 10**9}, "beyond the output's"),
        ({"stride": 2**62}, "beyond the output's"),
        ({"allowed": "1"}, "a number"),
    ],
)
def test_a_proof_that_makes_no_sense_is_refused(change, said, proven, verify, tmp_path):
    copy = Path(shutil.copytree(proven.path, tmp_path / "m.adrenoc"))
    proof = json.loads((copy / PROOF).read_text())
    trial = proof["trials"][0]
    for key, value in change.items():
        for place in (proof, trial, trial["inputs"][0], trial["outputs"][0]):
            if key in place:
                place[key] = value
                break
    replace_file(copy, PROOF, json.dumps(proof).encode())
    done = verify(open_bundle(copy), expect=DAMAGED)
    assert said in done.err and "proof.json" in done.err


def test_a_proof_that_was_changed_is_refused(proven, verify, tmp_path):
    copy = Path(shutil.copytree(proven.path, tmp_path / "m.adrenoc"))
    text = (copy / PROOF).read_text()
    (copy / PROOF).write_text(text.replace('"bucket": 0', '"bucket": 1'))
    done = verify(replace(proven, path=copy), expect=DAMAGED)
    assert "proof.json is not what was compiled" in done.err


def test_a_bundle_without_a_proof_says_so(bundle, verify):
    assert "adrenoc prove BUNDLE MODEL" in verify(bundle, expect=UNSUPPORTED).err


def test_another_model_is_refused(bundle, work):
    assert "was compiled from two.onnx" in refuse(
        BundleError, "prove", bundle.path, work / "proven" / "m.onnx"
    )
    assert not (bundle.path / PROOF).exists()


def test_the_app_goes_on_with_what_it_bound(bundle, case, work, runtime, opencl, execute, tmp_path):
    """The C++ wrapper: verified between two runs, whose outputs are the same."""
    program = compile_against(runtime, "verify_program.cc", tmp_path / "verify_program")
    copy = tmp_path / "two.tar"
    shutil.copy(bundle.path.with_suffix(".tar"), copy)
    assert main(["prove", str(copy), str(work / "two.onnx")]) == 0
    assert execute(program, copy, opencl, *case.inputs_of(bundle)).out.strip() == "right"
