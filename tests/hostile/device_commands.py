"""Hostile files, words and places for what measures, verifies and reports devices."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from onnx import TensorProto, helper

from tests.hostile.bundles import whole
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
        shown = ".".join(map(str, path))
        yield f"without {shown}", _changed(good, path, None, gone=True)
        for number, value in enumerate(values):
            yield f"{shown} as {number}", _changed(good, path, value)


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


_READ = {
    **{kind: _put("t.json", content) for kind, content in TEXTS.items()},
    **{kind: _special(kind, "t.json") for kind in SPECIAL},
}
"""What `t.json` may be, whatever it is read as."""


def _device_reports() -> Iterator[Case]:
    command = ("check", "model.onnx", "--device", "adreno:750+t.json")
    made = {kind: _put("t.json", plain) for kind, plain in _variants(REPORT)}
    named = {
        f"called {kind}": _put("t.json", _changed(REPORT, ("quirks", 0, "text"), name))
        for kind, name in NAMES.items()
    }
    avoided = {
        f"avoids {word}": _put("t.json", _changed(REPORT, ("quirks", 0, "avoid"), [word]))
        for word in ("nothing", "operator:", "operator:none", "fusion:x", "\x1b[2J", "a\nb")
    }
    for kind, make in {**_READ, **made, **named, **avoided}.items():
        yield Case("device reports", kind, make, command, codes=ENDED)


LAB = {
    "adrenoc_lab": 1,
    "runtime": "0.1.0",
    "system": "Android 36",
    "device": {"facts": {"name": "QUALCOMM Adreno(TM)", "driver": "d", "gpu": "750"}},
    "suites": [
        {
            **{"suite": "mixed, textures", "status": "wrong", "cases": 1, "kernels": 1},
            **{"launches": 1, "text": "", "findings": REPORT["findings"]},
        }
    ],
    "networks": [{"network": "n", "status": "right", "p50_ms": 1.0, "p90_ms": 1, "runs": 9}],
    "beside": [],
    "is_whole": True,
}


def _lab_reports() -> Iterator[Case]:
    command, makes = ("device", "import", "t.json", "-o", "lab"), ("lab",)
    made = {kind: _put("t.json", plain) for kind, plain in _variants(LAB)}
    for kind, make in {**_READ, **made}.items():
        yield Case("lab reports", kind, make, command, codes=ENDED, makes=makes)


def _read_reports() -> Iterator[Case]:
    command = ("device", "report", "t.json", "-o", "out.json")
    case = partial(Case, "files to report", command=command)
    for kind, make in _READ.items():
        yield case(kind, make)
    made = {f"a device report, {kind}": plain for kind, plain in _variants(REPORT)}
    made |= {
        f"a device called {kind}": _changed(REPORT, ("device", "name"), name)
        for kind, name in NAMES.items()
    }
    for kind, plain in made.items():
        yield case(kind, _put("t.json", plain), codes=ENDED, makes=("out.json",))


def _fleets() -> Iterator[Case]:
    case, fleet = partial(Case, "fleets", makes=("fleet",)), ("device", "fleet")
    judged = (*fleet, "model.onnx", *_NOWHERE, "--baseline", "t.json")
    for kind in (*TEXTS, *_BRIEF):
        yield case(f"a baseline: {kind}", _READ[kind], judged)
    for kind in _BRIEF:
        yield case(f"a model: {kind}", _special(kind, "m.onnx"), (*fleet, "m.onnx", *_NOWHERE))
    yield case("no device", command=(*fleet, "model.onnx"), codes={2}, makes=())
    places = ("", ":", "host", "host:", "host:0", "host:99999", "a:b:c", "\x1b[2J:1", "[::1]:1")
    for name, words in {
        **{f"a server at {where!r}": ("model.onnx", "--on", where) for where in places},
        "a server twice": ("model.onnx", *_NOWHERE, *_NOWHERE),
        "a model twice": ("model.onnx", "model.onnx", *_NOWHERE),
    }.items():  # a device that is away is a row
        yield case(name, command=(*fleet, *words), codes=_USAGE | {0})


def _places() -> Iterator[Case]:
    case = partial(Case, "places of measurements")
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

        def place(folder: Path, make: Make) -> None:
            _put("r.json", REPORT)(folder)
            make(folder)

        for kind, make in PLACES.items():
            # What lies there is none of the inputs of a report.
            replaced = name == "report" and "the model" in kind
            yield case(
                f"{kind}, {name}",
                partial(place, make=make),
                (*command, "out"),
                codes=ENDED if replaced else TYPED,
                makes=(*makes, "model.onnx", "out") if replaced else makes,
            )
        for kind, path in PATHS.items():
            replaced = name == "report" and "itself" in kind
            if path not in ("~", "/", ".."):
                yield case(
                    f"named: {kind}, {name}",
                    partial(place, make=lambda folder: (folder / "x").mkdir()),
                    (*command, path),
                    codes=_USAGE | ({0} if replaced else set()),
                    makes=(*makes, "model.onnx") if replaced else makes,
                )


def _words() -> Iterator[Case]:
    words = {
        **{
            f"{name} {option}": ("device", verb, *_NOWHERE, option)
            for name, verb, options in (
                ("calibrate", "calibrate", ("--budget", "--only", "--device")),
                ("verify-device", "verify", ("--budget", "--only", "--precision", "--device")),
            )
            for option in options
        },
        "fleet --do": ("device", "fleet", "model.onnx", *_NOWHERE, "--do"),
        "run --prompt-ids": ("run", "b", "--prompt-ids"),
        "run --max-tokens": ("run", "b", "--prompt-ids", "1", "--max-tokens"),
        "compile --context": ("compile", "model.onnx", "-o", "o", "--context"),
        "compile --prefill": ("compile", "model.onnx", "-o", "o", "--prefill"),
    }
    for name, command in words.items():
        codes, makes = (_USAGE | {0}, ("fleet",)) if "fleet" in command else (_USAGE, ())
        case = partial(Case, "words of measurements", codes=codes, makes=makes)
        for word in _WORDS:
            yield case(f"{name} {word[:12]!r}", whole, (*command, word))


def _proofs() -> Iterator[Case]:
    case = partial(Case, "proofs")
    for kind in SPECIAL:
        yield case(f"a model: {kind}", _special(kind, "m.onnx"), ("prove", "b", "m.onnx"))
        yield case(f"a bundle: {kind}", _special(kind, "x"), ("prove", "x", "model.onnx"))
    for kind, content in TEXTS.items():
        yield case(
            f"a manifest: {kind}",
            lambda folder, c=content: (
                make_bundle_folder(folder / "b"),
                (folder / "b" / "manifest.json").write_bytes(c),
            ),
            ("prove", "b", "model.onnx"),
        )
    yield case("of another model", whole, ("prove", "b", "model.onnx"), said="was compiled from")


def _decoders() -> Iterator[Case]:
    """`genai_config.json` lies beside a decoder, which has caches by their names."""
    kept = [
        helper.make_tensor_value_info(f"{name}.0.{kind}", TensorProto.FLOAT, [1, 2, rows, 8])
        for name, rows in (("past_key_values", "past"), ("present", "total"))
        for kind in ("key", "value")
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
    case = partial(Case, "decoders", codes=ENDED)
    for kind, config in configs.items():
        yield case(f"a configuration: {kind}", beside(config), ("check", "d.onnx"))
        name = f"a configuration to compile: {kind}"
        yield case(name, beside(config), ("compile", "d.onnx"))
    for kind in _BRIEF:

        def special(folder: Path, kind: str = kind) -> None:
            (folder / "d.onnx").write_bytes(content)
            SPECIAL[kind](folder, "genai_config.json")

        yield case(f"a configuration: {kind}", special, ("compile", "d.onnx"))
    make = beside(json.dumps(good).encode())
    for option in ("--context", "--prefill"):
        for word in (*_WORDS, "1", "65536", "2147483648", "1,2,3,4,5,6,7,8,9,10", "16,16"):
            command = ("compile", "d.onnx", option, word)
            yield case(f"{option} {word[:12]!r}", make, command, codes=ENDED | {2})
