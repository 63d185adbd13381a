"""Hostile files, words and places for what measures, verifies and reports devices."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from onnx import TensorProto, helper

from tests.hostile.case import ENDED, TYPED, Case, Make
from tests.hostile.models import NAMES, SPECIAL
from tests.hostile.outputs import PATHS, PLACES, TEXTS
from tests.unit.fake_compiled import make_bundle_folder

_USAGE = Case.codes | {2}
_NOWHERE = ("--on", "127.0.0.1:1")
"""A server that nobody is at."""
_HUGE = "9" * 400
_WORDS = ("", " ", "-1", "0", "nan", "inf", "1e999", _HUGE, "0x10", "\x1b[2J", "½", "1,,2", ",")
_BRIEF = ("a pipe", "endless zeros", "a folder", "a circle of links", "memory", "a socket")


def cases() -> Iterator[Case]:
    yield from _read_reports()
    yield from _device_reports()
    yield from _lab_reports()
    yield from _fleets()
    yield from _places()
    yield from _words()
    yield from _proofs()
    yield from _decoders()


def _put(name: str, content: bytes | str | Any) -> Make:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()

    def make(folder: Path) -> None:
        make_bundle_folder(folder / "b")
        (folder / name).write_bytes(data)

    return make


def _special(kind: str, name: str) -> Make:
    def make(folder: Path) -> None:
        make_bundle_folder(folder / "b")
        SPECIAL[kind](folder, name)

    return make


def _variants(good: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """A good object with one part after the other missing, or of another type."""
    values: tuple[Any, ...] = (None, [], {}, "", "\x1b[2J", -1, 1e308, 2**63, True, [[[]]], [{}])
    for path in _paths(good):
        yield f"without {_shown(path)}", _changed(good, path, None, gone=True)
        for number, value in enumerate(values):
            yield f"{_shown(path)} as {number}", _changed(good, path, value)


def _shown(path: tuple[Any, ...]) -> str:
    return ".".join(map(str, path))


def _paths(value, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    below = value.items() if isinstance(value, dict) else ()
    below = enumerate(value) if isinstance(value, list) else below
    for key, inner in below:
        yield (*above, key)
        yield from _paths(inner, (*above, key))


def _changed(good, path: tuple[Any, ...], value, *, gone: bool = False):
    copy = json.loads(json.dumps(good))
    place = copy
    for key in path[:-1]:
        place = place[key]
    if gone:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return copy


REPORT: dict[str, Any] = {
    "format": 1,
    "device": {"name": "QUALCOMM Adreno(TM)", "driver": "d", "gpu": "750"},
    "date": "2026-01-01",
    "suites": {"names": ["mixed, textures"], "cases": 1, "kernels": 1, "launches": 1},
    "is_right": True,
    "quirks": [
        {"name": "q", "text": "t", "source": "s", "avoid": ["operator:softmax"]},
        {"name": "r", "text": "t", "source": "s", "banned_work_groups": [[8, 2, 1]]},
        {"name": "w", "text": "t", "source": "s", "image_extent_below": 4097},
    ],
    "findings": [{"case": "softmax: x", "suite": "mixed", "text": "wrong", "helps": ["t"]}],
    "failed_once": [],
}


def _device_reports() -> Iterator[Case]:
    command = ("check", "model.onnx", "--device", "adreno:750+t.json")
    texts = {kind: _put("t.json", content) for kind, content in TEXTS.items()}
    made = {kind: _put("t.json", plain) for kind, plain in _variants(REPORT)}
    special = {kind: _special(kind, "t.json") for kind in SPECIAL}
    named = {
        f"called {kind}": _put("t.json", _changed(REPORT, ("quirks", 0, "text"), name))
        for kind, name in NAMES.items()
    }
    avoided = {
        f"avoids {word}": _put("t.json", _changed(REPORT, ("quirks", 0, "avoid"), [word]))
        for word in ("nothing", "operator:", "operator:none", "fusion:x", "\x1b[2J", "a\nb")
    }
    for kind, make in {**texts, **made, **special, **named, **avoided}.items():
        yield Case(family="device reports", name=kind, make=make, command=command, codes=ENDED)


LAB = {
    "adrenoc_lab": 1,
    "runtime": "0.1.0",
    "system": "Android 36",
    "device": {"facts": {"name": "QUALCOMM Adreno(TM)", "driver": "d", "gpu": "750"}},
    "suites": [
        {
            "suite": "mixed, textures",
            "status": "wrong",
            "cases": 1,
            "kernels": 1,
            "launches": 1,
            "text": "",
            "findings": REPORT["findings"],
        }
    ],
    "networks": [{"network": "n", "status": "right", "p50_ms": 1.0, "p90_ms": 1, "runs": 9}],
    "beside": [],
    "is_whole": True,
}


def _lab_reports() -> Iterator[Case]:
    command = ("device", "import", "t.json", "-o", "lab")
    texts = {kind: _put("t.json", content) for kind, content in TEXTS.items()}
    made = {kind: _put("t.json", plain) for kind, plain in _variants(LAB)}
    special = {kind: _special(kind, "t.json") for kind in SPECIAL}
    for kind, make in {**texts, **made, **special}.items():
        yield Case(
            family="lab reports",
            name=kind,
            make=make,
            command=command,
            codes=ENDED,
            makes=("lab", "lab/device.json", "lab/report.html"),
        )


def _read_reports() -> Iterator[Case]:
    for kind, content in TEXTS.items():
        yield Case(
            family="files to report",
            name=kind,
            make=_put("t.json", content),
            command=("device", "report", "t.json", "-o", "out.json"),
        )
    for kind in SPECIAL:
        yield Case(
            family="files to report",
            name=kind,
            make=_special(kind, "t.json"),
            command=("device", "report", "t.json", "-o", "out.json"),
        )
    for kind, plain in _variants(REPORT):
        yield Case(
            family="files to report",
            name=f"a device report, {kind}",
            make=_put("t.json", plain),
            command=("device", "report", "t.json", "-o", "out.json"),
            codes=ENDED,
            makes=("out.json",),
        )
    for kind, name in NAMES.items():
        plain = _changed(REPORT, ("device", "name"), name)
        yield Case(
            family="files to report",
            name=f"a device called {kind}",
            make=_put("t.json", plain),
            command=("device", "report", "t.json", "-o", "out.json"),
            codes=ENDED,
            makes=("out.json",),
        )


def _fleets() -> Iterator[Case]:
    run = ("device", "fleet", "model.onnx", *_NOWHERE)
    for kind, content in TEXTS.items():
        yield Case(
            family="fleets",
            name=f"a baseline: {kind}",
            make=_put("t.json", content),
            command=(*run, "--baseline", "t.json"),
            makes=("fleet",),
        )
    for kind in _BRIEF:
        yield Case(
            family="fleets",
            name=f"a baseline: {kind}",
            make=_special(kind, "t.json"),
            command=(*run, "--baseline", "t.json"),
            makes=("fleet",),
        )
        yield Case(
            family="fleets",
            name=f"a model: {kind}",
            make=_special(kind, "m.onnx"),
            command=("device", "fleet", "m.onnx", *_NOWHERE),
            makes=("fleet",),
        )
    for where in (
        "",
        ":",
        "host",
        "host:",
        "host:0",
        "host:99999",
        "a:b:c",
        "\x1b[2J:1",
        "[::1]:1",
    ):
        yield Case(
            family="fleets",
            name=f"a server at {where!r}",
            command=("device", "fleet", "model.onnx", "--on", where),
            codes=_USAGE | {0},  # a device that is away is a row
            makes=("fleet",),
        )
    yield Case(
        family="fleets", name="no device", command=("device", "fleet", "model.onnx"), codes={2}
    )
    yield Case(
        family="fleets",
        name="a server twice",
        command=("device", "fleet", "model.onnx", *_NOWHERE, *_NOWHERE),
        codes=_USAGE | {0},
        makes=("fleet",),
    )
    yield Case(
        family="fleets",
        name="a model twice",
        command=("device", "fleet", "model.onnx", "model.onnx", *_NOWHERE),
        codes=_USAGE | {0},
        makes=("fleet",),
    )


def _places() -> Iterator[Case]:
    commands = {
        "calibrate": ("device", "calibrate", *_NOWHERE, "-o"),
        "calibrate --html": ("device", "calibrate", *_NOWHERE, "-o", "t.toml", "--html"),
        "calibrate --validate": ("device", "calibrate", "--validate", *_NOWHERE, "-o"),
        "verify-device": ("device", "verify", *_NOWHERE, "-o"),
        "fleet": ("device", "fleet", "model.onnx", *_NOWHERE, "-o"),
        "fleet --html": ("device", "fleet", "model.onnx", *_NOWHERE, "--html"),
        "fleet --junit": ("device", "fleet", "model.onnx", *_NOWHERE, "--junit"),
        "report": ("device", "report", "r.json", "-o"),
    }
    for name, command in commands.items():
        makes = ("fleet",) if name.startswith("fleet") else ()
        replaces = name == "report"  # what lies there is none of its inputs
        for kind, make in PLACES.items():
            yield Case(
                family="places of measurements",
                name=f"{kind}, {name}",
                make=lambda folder, make=make: (_put("r.json", REPORT)(folder), make(folder)),
                command=(*command, "out"),
                codes=ENDED if replaces and "the model" in kind else TYPED,
                makes=(*makes, "model.onnx", "out") if replaces and "the model" in kind else makes,
            )
        for kind, path in PATHS.items():
            if path in ("~", "/", ".."):
                continue
            yield Case(
                family="places of measurements",
                name=f"named: {kind}, {name}",
                make=lambda folder: (_put("r.json", REPORT)(folder), (folder / "x").mkdir()),
                command=(*command, path),
                codes=_USAGE | ({0} if replaces and "itself" in kind else set()),
                makes=(*makes, "model.onnx") if replaces and "itself" in kind else makes,
            )


def _words() -> Iterator[Case]:
    words = {
        "calibrate --budget": ("device", "calibrate", *_NOWHERE, "--budget"),
        "calibrate --only": ("device", "calibrate", *_NOWHERE, "--only"),
        "calibrate --device": ("device", "calibrate", *_NOWHERE, "--device"),
        "verify-device --budget": ("device", "verify", *_NOWHERE, "--budget"),
        "verify-device --only": ("device", "verify", *_NOWHERE, "--only"),
        "verify-device --precision": ("device", "verify", *_NOWHERE, "--precision"),
        "verify-device --device": ("device", "verify", *_NOWHERE, "--device"),
        "fleet --do": ("device", "fleet", "model.onnx", *_NOWHERE, "--do"),
        "run --prompt-ids": ("run", "b", "--prompt-ids"),
        "run --max-tokens": ("run", "b", "--prompt-ids", "1", "--max-tokens"),
        "compile --context": ("compile", "model.onnx", "-o", "o", "--context"),
        "compile --prefill": ("compile", "model.onnx", "-o", "o", "--prefill"),
    }
    for name, command in words.items():
        for word in _WORDS:
            is_fleet = "fleet" in command
            yield Case(
                family="words of measurements",
                name=f"{name} {word[:12]!r}",
                make=lambda folder: make_bundle_folder(folder / "b"),
                command=(*command, word),
                codes=_USAGE | ({0} if is_fleet else set()),
                makes=("fleet",) if is_fleet else (),
            )


def _proofs() -> Iterator[Case]:
    for kind in SPECIAL:
        yield Case(
            family="proofs",
            name=f"a model: {kind}",
            make=_special(kind, "m.onnx"),
            command=("prove", "b", "m.onnx"),
        )
        yield Case(
            family="proofs",
            name=f"a bundle: {kind}",
            make=_special(kind, "x"),
            command=("prove", "x", "model.onnx"),
        )
    for kind, content in TEXTS.items():
        yield Case(
            family="proofs",
            name=f"a manifest: {kind}",
            make=lambda folder, c=content: (
                make_bundle_folder(folder / "b"),
                (folder / "b" / "manifest.json").write_bytes(c),
            ),
            command=("prove", "b", "model.onnx"),
        )
    yield Case(
        family="proofs",
        name="of another model",
        make=lambda folder: make_bundle_folder(folder / "b"),
        command=("prove", "b", "model.onnx"),
        said="was compiled from",
    )


def _decoders() -> Iterator[Case]:
    """`genai_config.json` lies beside a decoder, which has caches by their names."""
    kept = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2, rows, 8])
        for name, rows in (
            ("past_key_values.0.key", "past"),
            ("past_key_values.0.value", "past"),
            ("present.0.key", "total"),
            ("present.0.value", "total"),
        )
    ]
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, "sequence"])
    mask = helper.make_tensor_value_info("attention_mask", TensorProto.INT64, [1, "total"])
    nodes = [
        helper.make_node("Identity", [a.name], [b.name])
        for a, b in zip(kept[:2], kept[2:], strict=True)
    ]
    graph = helper.make_graph(nodes, "d", [ids, mask, *kept[:2]], kept[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    content = model.SerializeToString()
    good = {"model": {"context_length": 64, "decoder": {"head_size": 8}}}

    def beside(config: bytes) -> Make:
        def make(folder: Path) -> None:
            (folder / "d.onnx").write_bytes(content)
            (folder / "genai_config.json").write_bytes(config)

        return make

    configs = dict(TEXTS)
    configs |= {kind: json.dumps(plain).encode() for kind, plain in _variants(good)}
    for kind, config in configs.items():
        yield Case(
            family="decoders",
            name=f"a configuration: {kind}",
            make=beside(config),
            command=("check", "d.onnx"),
            codes=ENDED,
        )
        yield Case(
            family="decoders",
            name=f"a configuration to compile: {kind}",
            make=beside(config),
            command=("compile", "d.onnx"),
            codes=ENDED,
        )
    for kind in _BRIEF:
        yield Case(
            family="decoders",
            name=f"a configuration: {kind}",
            make=lambda folder, kind=kind: (
                (folder / "d.onnx").write_bytes(content),
                SPECIAL[kind](folder, "genai_config.json"),
            ),
            command=("compile", "d.onnx"),
            codes=ENDED,
        )
    for option in ("--context", "--prefill"):
        for word in (*_WORDS, "1", "65536", "2147483648", "1,2,3,4,5,6,7,8,9,10", "16,16"):
            yield Case(
                family="decoders",
                name=f"{option} {word[:12]!r}",
                make=beside(json.dumps(good).encode()),
                command=("compile", "d.onnx", option, word),
                codes=ENDED | {2},
            )
