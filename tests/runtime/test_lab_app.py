"""The logic of adrenoc-lab.apk in a JVM: what it reports of a right driver, and of wrong ones."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import lab_contents
import numpy as np
import pytest
from lab_contents import Contents

from adrenoc.bundle.bundle import PROOF, open_bundle, put_files, write_app_tar
from adrenoc.cli.main import main
from adrenoc.lab.prove.verify_device import pick_cases
from adrenoc.native.android.runtime_toolchain import QUICKLY, find_javac
from adrenoc.target.device_set import DeviceReport, read_report
from adrenoc.target.target import load_target
from tests.commands import run_program
from tests.faulty.driver import claim
from tests.runtime.programs import HERE, Finished, Jvm

LAB = Path(lab_contents.__file__).parent / "lab"
CASES = ("softmax: along channels", "conv2d: 3x3 with a border")
NETWORK = "squeezenet1_1"
# A CPU takes minutes for those of phones.
DECODER = {"layers": 1, "context": 160, "vocabulary": 40}
PROBES = {
    "launch": ("copy", (1, 4, 8, 8), (2, 8)),
    "memory": ("copy", (1, 16, 16, 16), (2, 6)),
    "convolution, 3x3": ("3x3", (1, 8, 8, 8), (2, 6)),
    "depthwise, 3x3": ("depthwise", (1, 16, 8, 8), (2, 6)),
    "softmax": ("softmax", (1, 4, 8, 8), (2, 6)),
}


@dataclass(frozen=True, kw_only=True)
class Phone:
    """What stands in for one: the app's assets, and the JVM that runs its logic."""

    jvm: Jvm
    assets: Path
    opencl: str

    def run(self, folder: Path, *, expect: int | None = 0, **settings: str) -> Finished:
        """Run the app once, with its journal in a folder."""
        command = [self.jvm.java, f"-Djava.library.path={self.jvm.libraries}", "-cp"]
        command += [self.jvm.class_path, "LabRun", self.opencl, str(self.assets)]
        preload = {"LD_PRELOAD": str(self.jvm.signals), **settings}
        files = folder / "journal", folder / "page.html"
        return self.jvm.execute(*command, *files, expect=expect, **preload)

    def report(self, folder: Path, **settings: str) -> dict[str, Any]:
        return self.run(folder, **settings).json()


def _compile_runner(folder: Path, class_path: str, *sources: Path) -> Path:
    """The program of the tests, with these sources of the app."""
    command = [find_javac(), QUICKLY, "-Xlint:all", "-Werror", "-cp", class_path, "-d", str(folder)]
    files = (*sources, HERE / "lab/LabRun.java")
    subprocess.run([*command, *map(str, files)], check=True)
    return folder


@pytest.fixture(scope="module")
def phone(jvm, opencl, tmp_path_factory) -> Phone:
    folder = tmp_path_factory.mktemp("lab")
    scratch, assets, classes = folder / "scratch", folder / "assets", folder / "classes"
    scratch.mkdir()
    assets.mkdir()
    contents = Contents(assets=assets, scratch=scratch)
    host = load_target("host")
    limits = replace(host.limits, fp16=False)
    contents.add_suites(replace(host, gpu=replace(host.gpu, limits=limits)), pick_cases(CASES))
    contents.add_probes("host", PROBES)
    contents.add_network(NETWORK, "host", size=32)
    contents.add_decoder("few layers", "host", DECODER)
    contents.finish()
    sources = [path for path in (LAB / "src").rglob("*.java") if path.stem != "LabActivity"]
    _compile_runner(classes, jvm.class_path, *sources)
    path = os.pathsep.join((jvm.class_path, str(classes)))
    return Phone(jvm=replace(jvm, class_path=path), assets=assets, opencl=opencl)


@pytest.fixture(scope="module")
def suites(phone, tmp_path_factory) -> Phone:
    """The same app with its suites alone, which take seconds."""
    assets = shutil.copytree(phone.assets, tmp_path_factory.mktemp("suites") / "assets")
    rows = (assets / "lab.tsv").read_text().splitlines(keepends=True)
    kept = [row for row in rows if row.startswith(("suite\t", "case\t"))]
    (assets / "lab.tsv").write_text("".join(kept))
    return replace(phone, assets=assets)


def test_a_right_driver(phone, tmp_path):
    report = phone.report(tmp_path)
    assert [suite["status"] for suite in report["suites"]] == ["right"] * 3, report
    (network,) = report["networks"]
    assert network["status"] == "right"
    assert 0 < network["p50_ms"] <= network["p90_ms"] < network["init_ms"] * 100
    assert network["memory_bytes"] > 0 and network["runs"] > 0 and len(network["rounds_ms"]) == 3
    (decoder,) = report["decoders"]
    assert decoder["status"] == "right" and decoder["tokens"] == 24, decoder
    assert 0 < decoder["token_ms"] < decoder["prompt_ms"] and decoder["prompt_tokens"] == 100
    assert [probe["status"] for probe in report["probes"]] == ["right"] * len(PROBES), report[
        "probes"
    ]
    assert report["device"]["facts"]["driver"]
    assert report["is_whole"]
    _import(report, tmp_path)
    again = phone.run(tmp_path)  # all is there: nothing runs
    assert json.loads(again.out) == report
    assert not again.err


def _import(report: dict[str, Any], folder: Path) -> DeviceReport:
    """What `adrenoc device import` makes of a report; and that one may be sent on."""
    path, output = folder / "lab.json", folder / "imported"
    path.write_text(json.dumps(report))
    assert main(["device", "import", str(path), "-o", str(output)]) == 0
    assert "Imported from lab.json." in (output / "report.html").read_text()
    assert main(["device", "report", str(path), "-o", str(folder / "sent.json")]) == 0
    (part,) = json.loads((folder / "sent.json").read_text())["parts"]
    assert part["content"]["suites"] == report["suites"]
    networks = part["content"].get("networks", ())
    assert [one["network"] for one in networks] == [NETWORK] * len(report.get("networks", ()))
    return read_report(output / "device.json")


def _faulty(layer: Path, *orders: str) -> dict[str, str]:
    return {"OPENCL_LAYERS": str(layer), "FAULTY_OPENCL": "\n".join((*claim("640"), *orders))}


def test_a_driver_that_gives_wrong_numbers(suites, layer, tmp_path):
    report = suites.report(tmp_path, **_faulty(layer, "edit|softmax|exp(|1.5f + exp("))
    assert report["device"]["facts"]["gpu"] == "640"
    wrong = [finding for suite in report["suites"] for finding in suite.get("findings", ())]
    assert wrong and {finding["case"] for finding in wrong} == {CASES[0]}
    assert "is wrong at element" in wrong[0]["text"] and "expected" in wrong[0]["text"]
    verified = _import(report, tmp_path)
    assert verified.device.gpu == "640" and not verified.is_right
    assert {finding.case for finding in verified.findings} == {CASES[0]}


def test_a_driver_that_ends_the_app(suites, layer, tmp_path):
    """The next start names the step, and goes on after it."""
    crash = _faulty(layer, "crash|conv2d")
    for _ in range(8):
        if (done := suites.run(tmp_path, expect=None, **crash)).code == 0:
            break
    report = done.json()
    assert {suite["status"] for suite in report["suites"]} == {"failed"}
    assert all("the app ended while this ran" in suite["text"] for suite in report["suites"])
    assert report["is_whole"]


def test_expected_numbers_that_are_altered(suites, tmp_path):
    """One number of each suite: it is found, and its case is named."""
    altered = replace(suites, assets=shutil.copytree(suites.assets, tmp_path / "assets"))
    rows = [line.split("\t") for line in (altered.assets / "lab.tsv").read_text().splitlines()]
    for numbers in {row[3] for row in rows if row[0] == "suite"}:
        held = np.fromfile(altered.assets / numbers, np.float32)
        held[-1] += 1.0  # the last output's last
        held.tofile(altered.assets / numbers)
    report = altered.report(tmp_path)
    last = [row[1] for row in rows if row[0] == "case"][-1]
    wrong = [finding for suite in report["suites"] for finding in suite["findings"]]
    assert len(wrong) == len(report["suites"]) and {finding["case"] for finding in wrong} == {last}


def test_a_proof_that_is_altered(phone, tmp_path):
    """One number that a bundle is held to: the network is wrong, and no time of it is told."""
    folder = shutil.copytree(
        phone.assets.parent / f"scratch/{NETWORK}.adrenoc", tmp_path / "n.adrenoc"
    )
    bundle, assets = open_bundle(folder), tmp_path / "assets"
    proof = json.loads((folder / PROOF).read_text())
    proof["trials"][0]["outputs"][0]["values"][7] += 1.0
    put_files(bundle, {PROOF: json.dumps(proof).encode()})
    assets.mkdir()
    write_app_tar(folder, assets / "n.tar", name=bundle.manifest.name)
    (assets / "lab.tsv").write_text(f"network\t{NETWORK}\tn.tar\n")
    shutil.copy(phone.assets / "page.html", assets)
    (network,) = replace(phone, assets=assets).report(tmp_path)["networks"]
    assert network["status"] == "wrong" and "p50_ms" not in network
    assert "output" in network["text"]


def test_tokens_that_are_altered(phone, tmp_path):
    """Of those that the reference is sure of; what it is not sure of may be another."""
    rows = (phone.assets / "lab.tsv").read_text().splitlines()
    (row,) = (line.split("\t") for line in rows if line.startswith("decoder\t"))
    tokens, sure = row[4].split(","), row[5].split(",")
    assert "1" in sure
    assets = tmp_path / "assets"
    assets.mkdir()
    for name in (row[2], "page.html"):
        shutil.copy(phone.assets / name, assets)
    altered = replace(phone, assets=assets)
    for flag, status in (("1", "wrong"), ("0", "right")):
        at = sure.index("1")
        other = [*tokens[:at], str((int(tokens[at]) + 1) % DECODER["vocabulary"])]
        flags = [*sure[:at], flag]
        listed = [*row[:4], ",".join(other), ",".join(flags)]
        (assets / "lab.tsv").write_text("\t".join(listed) + "\n")
        (tmp_path / flag).mkdir()
        (decoder,) = altered.report(tmp_path / flag)["decoders"]
        assert decoder["status"] == status, decoder
        assert status == "right" or f"token {at} is wrong" in decoder["text"]


def test_no_opencl(suites, tmp_path):
    report = replace(suites, opencl=str(tmp_path / "libOpenCL.so")).report(tmp_path)
    assert "The app cannot run anything here" in report["device"]["text"]
    assert not report["suites"] and not report["is_whole"]


@pytest.fixture(scope="module")
def app(android, tmp_path_factory) -> Path:
    """The app as `scripts/ci/lab_app` makes it, of few cases and small networks."""
    needed = ("aapt", "zipalign", "apksigner", "smali", "enjarify", "dexdump")
    lacking = [tool for tool in needed if shutil.which(tool) is None]
    if lacking:
        pytest.skip(
            f"no {', '.join(lacking)}: apt-get install aapt zipalign apksigner "
            "android-framework-res libsmali-java libasm-java enjarify dexdump"
        )
    folder = tmp_path_factory.mktemp("app")
    command = [str(LAB.parent / "ci/lab_app"), "--runtime", str(android.folder), "-o", str(folder)]
    command += ["--device", "adreno:750,adreno:830", "--size", "32", "--only", CASES[0]]
    environment = {name: value for name, value in os.environ.items() if name != "ANDROID_HOME"}
    done = run_program([sys.executable, *command], env=environment)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "classes.dex by scripts/lab/Dex.java" in done.stdout
    return folder / "adrenoc-lab.apk"


@pytest.mark.nightly
def test_the_app_whole(app, tmp_path):
    with zipfile.ZipFile(app) as archive:
        names = archive.namelist()
        plan = archive.read("assets/lab.tsv").decode()
        archive.extract("classes.dex", tmp_path)
    assert {"AndroidManifest.xml", "assets/page.html", "lib/arm64-v8a/libadrenoc_jni.so"} <= {
        *names
    }
    rows = [line.split("\t") for line in plan.splitlines()]
    assert {row[1] for row in rows if row[0] == "network"} == set(lab_contents.NETWORKS)
    estimated = {row[2] for row in rows if row[0] == "beside" and row[3] == "adrenoc's estimate"}
    assert estimated == {"750", "830"}
    shown = run_program(["dexdump", str(tmp_path / "classes.dex")], check=True).stdout
    assert "Lorg/adrenoc/lab/LabActivity;" in shown and "Lorg/adrenoc/Model;" in shown


@pytest.mark.nightly
def test_its_code_does_the_same(phone, app, tmp_path):
    """What stands in for d8: its classes.dex, made class files again, runs as the classes do."""
    back, runner = tmp_path / "back.jar", tmp_path / "runner"
    with zipfile.ZipFile(app) as archive:
        archive.extract("classes.dex", tmp_path)
    command = ["enjarify", str(tmp_path / "classes.dex"), "-o", str(back)]
    own = {**os.environ, "PYTHON": "/usr/bin/python3"}  # whose package it is
    subprocess.run(command, check=True, capture_output=True, env=own)
    _compile_runner(runner, phone.jvm.class_path)
    fakes = phone.jvm.class_path.split(os.pathsep)[1]
    path = os.pathsep.join((str(back), str(runner), fakes))
    report = replace(phone, jvm=replace(phone.jvm, class_path=path)).report(tmp_path)
    assert [suite["status"] for suite in report["suites"]] == ["right"] * 3
    assert [network["status"] for network in report["networks"]] == ["right"]
