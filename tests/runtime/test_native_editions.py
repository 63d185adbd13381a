"""A bundle for several GPUs in the runtime without Python: the same choices, the same numbers."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adrenoc.bundle.buckets import open_edition, read_editions
from adrenoc.bundle.bundle import Bundle, open_bundle
from adrenoc.bundle.tar import write_tar
from adrenoc.cli.main import main
from adrenoc.device.run import run_bundle
from tests.commands import compile_model
from tests.faulty.driver import claim
from tests.models import graph, write
from tests.runtime.programs import Finished, draw, replace_file

pytestmark = pytest.mark.usefixtures("device")

BAD_BUNDLE = 23


@pytest.fixture(scope="module")
def many(work) -> Bundle:
    """Kernels for two GPUs, in two batches each, with a proof."""
    drawn = draw(5, w=(30, 8, 3, 3), v=(96, 30, 1, 1), u=(96, 96, 3, 3), t=(96, 96, 1, 1))
    constants = {**drawn, "u": drawn["u"] / 30, "t": drawn["t"] / 10}
    nodes = (
        "a = Conv <pads = [1, 1, 1, 1]>(x, w) b = Relu(a) d = Conv(b, v) "
        "c = Conv <pads = [1, 1, 1, 1]>(d, u) p = GlobalAveragePool(c) y = Conv(p, t)"
    )
    model = write(graph(nodes, {"x": ("n", 8, 28, 28)}, ["y"], constants), work, "many.onnx")
    output, shape = work / "many.adrenoc", ("--shape", "x:1|2,8,28,28")
    compile_model(model, output, *shape, device="host:660,host:750", preset="")
    assert main(["prove", str(output), str(model)]) == 0
    bundle = open_bundle(output)
    assert any(move.transform is not None for move in bundle.moves().values())
    return bundle


@pytest.fixture
def start(runner, layer, tmp_path) -> Callable[..., Finished]:
    """Run a bundle on a driver that says it is of an Adreno of that number."""
    draw(1, x=(2, 8, 28, 28))["x"].tofile(tmp_path / "x.raw")
    words = ("--shape", "x=2x8x28x28", "--input", f"x={tmp_path / 'x.raw'}")
    files = (*words, "--output", f"y={tmp_path / 'y.raw'}")

    def run(path: Path, gpu: str, *orders: str, expect: int = 0, verify: bool = False) -> Finished:
        given = "\n".join((*orders, *claim(gpu)))  # the first of a kind counts
        faulty = {"OPENCL_LAYERS": str(layer), "FAULTY_OPENCL": given}
        return runner(path, *(("--verify",) if verify else files), expect=expect, **faulty)

    return run


def _expect(many: Bundle, folder: str, tmp_path: Path) -> None:
    """What came out are the numbers of that edition in Python, bit for bit."""
    part = open_edition(many, next(e for e in read_editions(many) if e.folder == folder))
    x = np.fromfile(tmp_path / "x.raw", "float32").reshape(2, 8, 28, 28)
    wanted = run_bundle(part, inputs={"x": x}, repeat=1, warmup=0).outputs["y"]
    got = np.fromfile(tmp_path / "y.raw", "float32").reshape(wanted.shape)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    ("gpu", "folder", "note"),
    [
        ("660", "devices/a660", "kernels for Adreno 660 run: the driver says Adreno 660"),
        ("750", "devices/a750", "kernels for Adreno 750 run: the driver says Adreno 750"),
        ("735", ".", "kernels for any Adreno run: the driver says Adreno 735, and the bundle has"),
    ],
)
def test_each_gpu_runs_its_own(gpu, folder, note, many, start, tmp_path):
    notes: list[Any] = start(many.path, gpu).json()["notes"]
    assert notes[0].startswith(note)
    _expect(many, folder, tmp_path)


def test_mesas_name_of_a_gpu_is_known(many, start):
    mesa = ("name|FD660", "version|OpenCL 3.0 ")
    note = start(many.path, "735", *mesa).json()["notes"][0]
    assert note.startswith("kernels for Adreno 660 run: the driver says Adreno 660")


@pytest.mark.parametrize(("gpu", "seen"), [("850", "850"), ("X1-85", "X1-85")])
def test_no_gpu_is_advised_that_is_not_listed(gpu, seen, many, start, tmp_path):
    """The runtime has no list, so it names what fits all."""
    copy = Path(shutil.copytree(many.path, tmp_path / "single.adrenoc"))
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["target"]["name"] = "adreno:a750"
    (copy / "manifest.json").write_text(json.dumps(manifest))
    notes = " ".join(start(copy, gpu).json()["notes"])
    assert f"the kernels were compiled for Adreno 750, and this is Adreno {seen}:" in notes
    assert "--device adreno " in notes and "adreno:" not in notes


def test_a_tar_of_several_gpus(many, start, tmp_path):
    tar = tmp_path / "many.adrenoc.tar"
    write_tar(many.root, tar, name=many.manifest.name)
    assert "Adreno 750" in start(tar, "750").json()["notes"][0]
    _expect(many, "devices/a750", tmp_path)


def test_kernels_that_a_driver_refuses_give_way_to_the_common_ones(many, start, tmp_path):
    note = start(many.path, "660", "fail|clCreateImage|1|-10").json()["notes"][0]
    assert note.startswith("kernels for any Adreno run: ")
    assert "could not run those for Adreno 660" in note
    _expect(many, ".", tmp_path)


@pytest.mark.parametrize("gpu", ["660", "735"])
def test_the_proof_holds_for_each(many, start, gpu):
    assert start(many.path, gpu, verify=True).code == 0


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("devices.json", (b"devices/a660", b"devices/../a6"), "devices.json"),
        ("devices.json", (b'"gpu": ""', b'"gpu": "1"'), "expected one for any Adreno as the last"),
        ("moves.json", (b'"first": 0', b'"first": -9'), "lies outside of its constant"),
        ("moves.json", (b'"source": "p', b'"source": "q'), "params.safetensors lacks p"),
    ],
)
def test_damaged_lists_are_refused(name, change, said, many, start, tmp_path):
    folder = Path(shutil.copytree(many.root, tmp_path / "damaged.adrenoc"))
    content = (folder / name).read_bytes()
    assert change[0] in content
    replace_file(folder, name, content.replace(*change))
    assert said in start(folder, "660", expect=BAD_BUNDLE).err


Execute = Callable[..., Finished]


@pytest.fixture(scope="module")
def offloaded(tmp_path_factory) -> Bundle:
    """Two regions with a kernel of textures between them."""
    nodes = "c = Conv <pads = [1, 1, 1, 1]>(x, w, b) r = Relu(c) e = Erf(r) y = Conv(e, v)"
    folder, constants = (
        tmp_path_factory.mktemp("clml"),
        draw(3, w=(6, 3, 3, 3), b=(6,), v=(4, 6, 1, 1)),
    )
    model = write(graph(nodes, {"x": (1, 3, 9, 7)}, ["y"], constants), folder)
    return compile_model(model, folder / "two.adrenoc", "--clml", "all")


FAILING = {"failing_call": "clCreateMLTensorQCOM", "failing_code": "CL_INVALID_VALUE"}


def test_both_variants_agree(offloaded, runner, tmp_path):
    assert [len(region.operators) for region in offloaded.manifest.regions] == [1, 1]
    draw(5, x=(1, 3, 9, 7))["x"].tofile(tmp_path / "x")
    found = {}
    for name, settings in {
        "none": None,
        "emulated": {},
        "old": {"extension": False},
        "failing": FAILING,
    }.items():
        out = tmp_path / name
        told = {} if settings is None else {"ADRENOC_CLML_EMULATOR": json.dumps(settings)}
        words = ("--input", f"x={tmp_path / 'x'}", "--repeat", 2, "--output", f"y={out}")
        done = runner(offloaded.path, *words, **told)
        found[name] = np.fromfile(out, "float32")
        by_textures = done.err.count("runs by texture kernels")
        # A call fails once: the second region runs by the emulator.
        assert by_textures == {"none": 2, "emulated": 0, "old": 2, "failing": 1}[name]
    assert found["none"].size == 4 * 9 * 7
    for name in ("emulated", "old", "failing"):
        assert np.allclose(found[name], found["none"], atol=1e-5)


def test_a_failing_run_is_an_error(offloaded, runner, tmp_path):
    (tmp_path / "x").write_bytes(bytes(4 * 3 * 9 * 7))
    settings = {
        "failing_call": "clEnqueueCopyMLTensorDataQCOM",
        "failing_code": "CL_OUT_OF_RESOURCES",
    }
    told = {"ADRENOC_CLML_EMULATOR": json.dumps(settings)}
    done = runner(offloaded.path, "--input", f"x={tmp_path / 'x'}", expect=None, **told)
    assert done.code not in (0, -6, -11)
    assert "clEnqueueCopyMLTensorDataQCOM failed with CL_OUT_OF_RESOURCES" in done.err
