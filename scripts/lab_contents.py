"""What `scripts/ci/lab_app` puts into the app: suites, networks, and times to stand beside theirs.

`lab.tsv` lists it for the app's `Lab.java`, a row each:

    suite    NAME BUNDLE NUMBERS KERNELS LAUNCHES    NUMBERS: inputs, then outputs of the reference
    case     TITLE ERROR                             of the suite's next output: the most it may err
    probe    NAME FEW MANY LAUNCHES LAUNCHES BYTES   two bundles, and what a launch more moves
    network  NAME BUNDLE                             with its proof in the bundle
    decoder  NAME BUNDLE PROMPT TOKENS SURE          tokens; 1 of those that halves choose too
    beside   NAME GPU WHOSE FIGURE                   of a network (ms) or a probe
"""

import csv
import itertools
import json
import math
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from fitting.board import FOLDER
from model_zoo import onnx_models
from model_zoo.decoder_shape import DecoderShape, genai_config
from model_zoo.make_decoders import KINDS, make_decoder
from onnx import helper, numpy_helper

from adrenoc.base.errors import AdrenocError
from adrenoc.base.files.read import sha256_bytes
from adrenoc.bundle.bundle import Bundle, open_bundle, write_app_tar
from adrenoc.cli.main import main as run_command
from adrenoc.importers.onnx.session import open_session
from adrenoc.lab.prove.cases import Case
from adrenoc.lab.prove.proof import put_proof
from adrenoc.lab.prove.suite import CASES, TOLERANCES, BuiltSuite, all_suites, make_suite
from adrenoc.pages.lab_report import page_template
from adrenoc.target.target import Target, load_target

NETWORKS = {
    "mobilenet_v2": onnx_models.mobilenet_v2,
    "squeezenet1_1": onnx_models.squeezenet,
    "resnet18": onnx_models.resnet18,
}
"""Those of which LiteRT's times are published, by the names that they have there."""
Probe = tuple[str, tuple[int, ...], tuple[int, int]]
"""An operator, the shape of its tensors, and the lengths of two chains."""
PROBES: dict[str, Probe] = {
    "launch": ("copy", (1, 4, 8, 8), (8, 72)),
    "memory": ("copy", (1, 64, 512, 256), (2, 10)),
    "convolution, 3x3": ("3x3", (1, 128, 28, 28), (2, 10)),
    "convolution, 1x1": ("1x1", (1, 512, 28, 28), (2, 10)),
    "depthwise, 3x3": ("depthwise", (1, 256, 56, 56), (2, 10)),
    "softmax": ("softmax", (1, 16, 256, 256), (2, 10)),
}
"""Chains of one operator: copies of so little that a launch alone counts, and of more than caches
hold; and what networks are made of."""
DECODER = {**KINDS["qwen3-0.6b"], "layers": 2, "vocabulary": 4096, "context": 512}
"""A language model of real extents but for its length and its words: none has published times."""
_PROMPT, _TOKENS = 100, 24
_LEAST_LEAD = 0.04
"""Of the range of logits: how far the likeliest has to be ahead for halves to choose it, too."""
PRESET = "fp16"
"""LiteRT's engine computes in halves, too."""


@dataclass(kw_only=True)
class Contents:
    """A folder of assets, and the rows of `lab.tsv` so far; `scratch` is for what is made of."""

    assets: Path
    scratch: Path
    rows: list[Sequence[object]] = field(default_factory=list)

    def finish(self) -> None:
        """Write the list and the page."""
        text = "".join("\t".join(map(str, row)) + "\n" for row in self.rows)
        (self.assets / "lab.tsv").write_text(text)
        (self.assets / "page.html").write_text(page_template(), "utf-8")

    def put_bundle(self, bundle: Bundle, stem: str) -> str:
        """Put a bundle in its form for apps; returns the name of the asset."""
        name = f"{stem}.tar"
        write_app_tar(bundle.root, self.assets / name, name=bundle.manifest.name)
        return name

    def put_numbers(self, arrays: Sequence[np.ndarray]) -> str:
        """Put arrays one behind the other, equal ones once; returns the name of the asset."""
        content = b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)
        name = f"{sha256_bytes(content)[:12]}.bin"
        (self.assets / name).write_bytes(content)
        return name

    def add_suites(self, target: Target, cases: Sequence[Case] = CASES) -> None:
        """Compile the suites of `adrenoc device verify`."""
        for suite in all_suites(cases, half_type=target.limits.fp16):
            made = make_suite(suite, target, self.scratch)
            manifest = made.bundle.manifest
            arrays = [made.inputs[spec.name] for spec in manifest.inputs]
            arrays += [made.expected[spec.name] for spec in manifest.outputs]
            asset = self.put_bundle(made.bundle, suite.name.replace(", ", "_"))
            numbers = self.put_numbers([array.astype(np.float32) for array in arrays])
            counts = made.kernels(), len(made.bundle.launches())
            self.rows.append(("suite", suite.name, asset, numbers, *counts))
            self.rows += [("case", *case) for case in _judged(made)]

    def add_probes(self, device: str, probes: Mapping[str, Probe] = PROBES) -> None:
        """Compile the chains for any Adreno, and list what the GPUs of a set are reckoned with."""
        common = "host" if device == "host" else "adreno"
        for place, (name, (operator, shape, lengths)) in enumerate(probes.items()):
            made = [
                self._chain(f"probe_{place}_{length}", operator, shape, length, common)
                for length in lengths
            ]
            assets = [self.put_bundle(bundle, bundle.manifest.name) for bundle in made]
            counts = [len(bundle.launches()) for bundle in made]
            self.rows.append(("probe", name, *assets, *counts, 4 * math.prod(shape)))
            if operator != "copy":
                self._reckon_probe(name, made, device, counts[1] - counts[0])
        for gpu in device.split(","):
            rates = load_target(gpu).performance
            for name, figure in (("launch", rates.launch_us), ("memory", rates.dram_gb_per_s)):
                if figure is not None:
                    self.rows.append(("beside", name, gpu.rpartition(":")[2], "listed", figure))

    def _reckon_probe(self, name: str, made: Sequence[Bundle], device: str, more: int) -> None:
        """List what one launch more of a chain should take on each GPU of a set, in us."""
        paths = [self.scratch / f"{bundle.manifest.name}.onnx" for bundle in made]
        few, many = (dict(_estimates(path, ["--device", device])) for path in paths)
        for gpu in few.keys() & many.keys():
            us = (many[gpu] - few[gpu]) * 1e3 / more
            self.rows.append(("beside", name, gpu, "listed", round(us, 2)))

    def _chain(
        self, stem: str, operator: str, shape: tuple[int, ...], length: int, device: str
    ) -> Bundle:
        names = [f"t{place}" for place in range(length + 1)]
        nodes = [_link(operator, a, b, shape[1]) for a, b in itertools.pairwise(names)]
        ends = [helper.make_tensor_value_info(n, 1, shape) for n in (names[0], names[-1])]
        graph = helper.make_graph(nodes, stem, ends[:1], ends[1:], _weights(operator, shape[1]))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        return self._compile(stem, model, ["--device", device])

    def _compile(self, stem: str, model: onnx.ModelProto, words: Sequence[str]) -> Bundle:
        path, output = self.scratch / f"{stem}.onnx", self.scratch / f"{stem}.adrenoc"
        path.write_bytes(model.SerializeToString(deterministic=True))
        told = [*words, "--preset", PRESET, "-o", str(output)]
        if run_command(["compile", str(path), *told]) != 0:
            raise SystemExit(1)  # it said why
        return open_bundle(output)

    def add_network(self, name: str, device: str, **size: int) -> None:
        """Compile a network with its proof, and ask what it should take."""
        words, model = ["--device", device], self.scratch / f"{name}.onnx"
        bundle = self._compile(name, NETWORKS[name](**size), words)
        put_proof(bundle, model)
        self.rows.append(("network", name, self.put_bundle(open_bundle(bundle.path), name)))
        own = ((gpu, "adrenoc's estimate", ms) for gpu, ms in _estimates(model, words))
        self.rows += [("beside", name, *row) for row in (*own, *_published(name))]

    def add_decoder(self, name: str, device: str, said: Mapping[str, Any] = DECODER) -> None:
        """Compile a language model, and ask onnxruntime for its tokens."""
        shape = DecoderShape(**said)
        proto = make_decoder(shape)
        (self.scratch / "genai_config.json").write_text(genai_config(shape), "utf-8")
        bundle = self._compile(name, proto, ["--device", device, "--prefill", "16"])
        prompt = np.random.default_rng(shape.seed).integers(1, shape.vocabulary, _PROMPT).tolist()
        chosen = list(_choose_tokens(proto, shape, prompt))
        lists = (prompt, [token for token, _ in chosen], [int(sure) for _, sure in chosen])
        asset = self.put_bundle(bundle, name)
        self.rows.append(("decoder", name, asset, *(",".join(map(str, one)) for one in lists)))


def _link(operator: str, taken: str, given: str, channels: int) -> onnx.NodeProto:
    """Make one operator of a chain; a copy is a maximum of one element, which no pass removes."""
    if operator == "copy":
        return helper.make_node("MaxPool", [taken], [given], kernel_shape=[1, 1])
    if operator == "softmax":
        return helper.make_node("Softmax", [taken], [given], axis=-1)
    side = 1 if operator == "1x1" else 3
    groups = channels if operator == "depthwise" else 1
    said = {"kernel_shape": [side, side], "pads": [side // 2] * 4, "group": groups}
    return helper.make_node("Conv", [taken, "weight"], [given], **said)


def _weights(operator: str, channels: int) -> list[onnx.TensorProto]:
    """Make what convolutions of a chain share, of a size that numbers keep theirs."""
    side = 1 if operator == "1x1" else 3
    depth = 1 if operator == "depthwise" else channels
    if operator in ("copy", "softmax"):
        return []
    drawn = np.random.default_rng(0).standard_normal((channels, depth, side, side))
    scaled = drawn.astype(np.float32) / np.float32(math.sqrt(depth * side * side))
    return [numpy_helper.from_array(scaled, "weight")]


def _choose_tokens(
    proto: onnx.ModelProto, shape: DecoderShape, prompt: Sequence[int]
) -> Iterator[tuple[int, bool]]:
    """Yield onnxruntime's greedy tokens, and whether it is sure of each."""
    session = open_session(proto)
    past = {
        one.name: np.zeros((1, shape.kv_heads, 0, shape.head), shape.float_type)
        for one in session.get_inputs()
        if one.name.startswith("past")
    }
    given, length = list(prompt), 0
    for _ in range(_TOKENS):
        length += len(given)
        feeds = {"input_ids": np.array([given], np.int64), **past}
        feeds["attention_mask"] = np.ones((1, length), np.int64)
        logits, *present = session.run(None, feeds)
        row = np.asarray(logits)[0, -1].astype(np.float64)
        second, first = np.sort(row)[-2:]
        given = [int(row.argmax())]
        yield given[0], bool(first - second > _LEAST_LEAD * np.ptp(row))
        past = dict(zip(past, map(np.asarray, present), strict=True))


def _judged(made: BuiltSuite) -> Iterator[tuple[str, float]]:
    """Yield the title and the most error of each output, as `examine.judge` takes them."""
    cases = {case.title: case for case in made.suite.cases}
    for spec in made.bundle.manifest.outputs:
        case, expected = cases[made.of_case[spec.name]], made.expected[spec.name]
        spread = float(expected.max() - expected.min()) or float(np.abs(expected).max()) or 1.0
        allowed = TOLERANCES[made.suite.precision] * case.slack * spread
        yield case.title, 0.0 if case.exact else allowed


def _estimates(model: Path, words: Sequence[str]) -> Iterator[tuple[str, float]]:
    """Yield what `adrenoc check` reckons on each GPU of a set whose rates are known, in ms."""
    command = [
        sys.executable,
        "-m",
        "adrenoc",
        "check",
        str(model),
        *words,
        "--preset",
        PRESET,
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    told = json.loads(done.stdout)
    if "error" in told:
        raise AdrenocError(told["error"]["message"])
    for verdict in told.get("devices", [told]):
        totals, gpu = verdict["totals"], verdict["target"].rpartition(":")[2]
        if totals["time_us"] is not None and not verdict["unknown_rates"]:
            ms = (totals["time_us"] + (totals["gaps_us"] or 0.0)) / 1e3
            yield gpu.removeprefix("a"), round(ms, 4)


def _published(name: str) -> Iterator[tuple[str, str, str]]:
    with (FOLDER / "times.tsv").open() as lines:
        for row in csv.DictReader(lines, delimiter="\t"):
            if row["network"] == name:
                yield row["gpu"], "LiteRT, published", row["ms"]
