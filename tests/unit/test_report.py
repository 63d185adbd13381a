"""What users send: figures of a device, and no word that is theirs."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adrenoc.base.errors import InputError
from adrenoc.cli.main import main
from adrenoc.pages.device_report import KINDS, Names, collect, report_text

SECRET = "Plan-9-from-Anna"
RUN: dict[str, Any] = {
    "device": f"Adreno 750 at {SECRET}:9000",
    "driver": "V@0615.0",
    "times": {"p50_ms": 1.5, SECRET: 2.0},
    "launching": {"mode": "kept arguments", "launches": 3, "reason": SECRET},
    "outputs": {SECRET: {"shape": [1], "dtype": "float32"}},
    "notes": [f"adrenoc compile {SECRET}.onnx --device adreno:750"],
    "nodes": [{"name": SECRET, "time_ms": 1.0}],
    "check": {"passed": True, "tolerance": 0.01, "tensors": [{"name": SECRET, "rmse": 0.5}]},
}
FLEET: dict[str, Any] = {
    "fleet": [
        {"action": "run", "device": SECRET, "model": f"/home/{SECRET}.onnx", "p50_ms": 1.0},
        {"action": "run", "device": SECRET, "model": "b.onnx", "target": f"{SECRET}.toml"},
        {"action": "run", "device": "10.1.2.3:9", "model": "b.onnx", "note": SECRET},
    ]
}


def _write(folder: Path, plain: object, name: str = "a.json") -> Path:
    (folder / name).write_text(json.dumps(plain))
    return folder / name


def _sent(folder: Path, *plains: object) -> str:
    return report_text(collect([_write(folder, p, f"{n}.json") for n, p in enumerate(plains)]))


def test_figures_go_and_names_stay(tmp_path):
    told = _sent(tmp_path, RUN, FLEET)
    assert SECRET not in told
    run, fleet = (part["content"] for part in json.loads(told)["parts"])
    assert (run["device"], run["times"], run["launching"]["launches"]) == (
        "Adreno 750",
        {"p50_ms": 1.5},
        3,
    )
    assert run["check"]["tensors"] == [{"rmse": 0.5}]
    rows = fleet["fleet"]
    assert [row["device"] for row in rows] == ["device 1", "device 1", "device 2"]
    assert [row["model"] for row in rows] == ["model 1", "model 2", "model 2"]
    assert "target" not in rows[1]


def test_keys_are_words_of_adrenoc_too(tmp_path):
    times = {"p50_ms": 1.5, "anna_phone": 2.0, "r58m12abcde": 3.0, "warm_1234_5678_9012_345": 1.0}
    target = {
        "base": "adreno",
        "limits": {"max_threads": 8, "annas_limit": 3},
        "measured": {"alu.half4": {"spread": 1.0, "anna": 2.0}, "anna.half4": {"spread": 2.0}},
    }
    told = _sent(tmp_path, {**RUN, "times": times}, target)
    run, sent = (part["content"] for part in json.loads(told)["parts"])
    assert run["times"] == {"p50_ms": 1.5}
    assert sent == {
        "base": "adreno",
        "limits": {"max_threads": 8},
        "measured": {"alu.half4": {"spread": 1.0}},
    }


def _places(plain, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where a part can be replaced."""
    if not isinstance(plain, dict | list):
        return [at]
    items = plain.items() if isinstance(plain, dict) else enumerate(plain)
    return [at, *(place for key, below in items for place in _places(below, (*at, key)))]


@given(st.sampled_from([RUN, FLEET]), st.data())
def test_what_nobody_listed_does_not_go(plain, data):
    """A new key anywhere stays here, with all that is below it; so does a part of another kind."""
    changed = copy.deepcopy(plain)
    places = [p for p in _places(changed) if isinstance(_part(changed, p), dict)]
    for place in data.draw(st.lists(st.sampled_from(places), min_size=1, max_size=3)):
        new = data.draw(st.sampled_from(["novel", "name2", "path", "weights"]))
        _part(changed, place)[new] = {"x": SECRET, SECRET: [SECRET]}
    kind = next(kind for kind in KINDS if changed.keys() >= {*kind.keys.split()})
    assert SECRET not in json.dumps(kind.pick(changed, Names()))


def _part(plain, place: tuple[Any, ...]):
    for key in place:
        plain = plain[key]
    return plain


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("failed in /home/anna/x.cc:3 of it", "failed in (path):3 of it"),
        ("ask anna@example.org now", "ask (address) now"),
        ("at 192.168.0.7:9090 it", "at (address) it"),
        ("ANNA-PC said annabel", "(name) said (word)"),
        ("\x1b[2Jclear", " [(word)"),
        ("x" * 1000, "(word)"),
        ("kernel " * 100, ("kernel " * 100)[:300]),
        # What no list of forbidden forms would know.
        (
            "measured on R58M12ABCDE, ce0117114f9c3a2b0c and 0123456789",
            "measured on (word), (word) and (word)",
        ),
        (
            "of annas-pixel with wake-annabel.tflite and layer.onnx",
            "of (word) with (word) and (word)",
        ),
        # Numbers are figures, but not as many as joined make one of a phone.
        ("IMEI 35-209900-176148-1, serial 1234-5678-9012", "(word) (word), serial (word)"),
        (
            "of ABCD1234-56, 1234abc-5678def and emulator-5554",
            "of (word), (word) and emulator-5554",
        ),
        ("at ip-10-0-0-5 and 0011.2233.4455, 0170-1234567", "at (word) and (address), (word)"),
        ("SM8650, SDM845 and X1-85 on 07/19/23 at 10:20:30", None),
        ("at 3c:5a:b4:01:02:03 and fe80::1ff:fe23:4567:890a", "at (address) and (address)"),
        ("conv.a and 1x1 64-128@28 by texel.of_rows", None),
        ("native_log(x) is off, from -4.25353e+37 to 6.10352e-05; msm-adreno-tz", None),
        ("A private ushort8 viewed as uchar* is miscompiled.", None),
        ("~/secret and ./there", "(path) and (path)"),
        ("12 GB/s of 3.5 ms", "12 GB/s of 3.5 ms"),
        ("no answer of lab-phone-7:9090 in 60 s", "no answer of (address) in 60 s"),
        ("host lab-7.local said", "host (address) said"),
        ("at [fe80::1%wlan0]:9090 it", "at (address) it"),
        ("in C:\\Users\\anna\\m.onnx it", "in (path) it"),
        ("in \\\\server\\share\\m.onnx", "in (path)"),
        ("in ~anna/m.onnx", "in (path)"),
        ("see https://corp.example/anna", "see (path)"),
        ("element [0, 3] of [1:2] in 1x3: 1.5", None),
        ("OpenCL 3.0 V@0615.0 (GIT@8e5499, I7, 1634112) (Date:10/01/21)", None),
        ("Compiler E031.37.12.01 at 2026-01-01T10:20:30", None),
        ("softmax: rows of 77 (mixed, textures): seen 0.5", None),
    ],
)
def test_texts_lose_what_is_the_users(text, kept):
    assert Names(own_words=("anna-pc",)).hide_own(text) == (text if kept is None else kept)


def test_a_command_that_failed_sends_how_it_ended(tmp_path):
    error = {"type": "BundleError", "message": f"{SECRET} is damaged", "hint": "", "exit_code": 21}
    told = _sent(tmp_path, {"error": error})
    assert SECRET not in told
    (part,) = json.loads(told)["parts"]
    assert part == {"kind": "error", "content": {"error": {"type": "BundleError", "exit_code": 21}}}


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.json", "", "is neither JSON nor TOML"),
        ("a.json", "[1]", "is nothing that adrenoc writes"),
        ("a.json", '{"a": 1}', "is nothing that adrenoc writes"),
        ("a.toml", "[", "is neither JSON nor TOML"),
        ("a.json", "[" * 100_000, "is neither JSON nor TOML"),
    ],
)
def test_files_that_are_none(tmp_path, name, content, said):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=said):
        collect([tmp_path / name])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("value", [None, 1, "x", [], {}, [[]], {"a": []}])
def test_parts_of_another_form_break_nothing(kind, value):
    assert isinstance(kind.pick(dict.fromkeys(kind.keys.split(), value), Names()), dict)


def test_the_command(tmp_path, capsys):
    file, out = _write(tmp_path, RUN), tmp_path / "r.json"
    assert main(["device", "report", str(file), "-o", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parts"][0]["kind"] == "run"
    assert json.loads(out.read_text())["adrenoc_report"] == 1
    assert main(["device", "report", str(file), "-o", str(file)]) != 0  # an input is not replaced
    assert json.loads(file.read_text()) == RUN


def test_a_validation_goes_without_the_name_of_its_file(tmp_path):
    """`calibrate --validate --device FILE.toml --json` prints nothing but the validation."""
    validation = {"device": "x", "target": f"{SECRET}.toml", "all": {"regret": 1.25}}
    fit = {"changed": [{"key": "conv.a", "after": 2.0}], "target_file": f"{SECRET}.toml"}
    told = _sent(tmp_path, {"validation": validation, "fit": fit})
    assert SECRET not in told
    (part,) = json.loads(told)["parts"]
    assert part["kind"] == "validation"
    assert part["content"] == {
        "validation": {"device": "x", "all": {"regret": 1.25}},
        "fit": {"changed": [{"key": "conv.a", "after": 2.0}]},
    }
    whole = {"device": "x", "driver": "y", "measures": [], "validation": validation, "fit": fit}
    told = _sent(tmp_path, whole, {"validation": {**validation, "target": "adreno:750"}})
    assert SECRET not in told
    first, second = (part["content"] for part in json.loads(told)["parts"])
    assert first["validation"] == {"device": "x", "all": {"regret": 1.25}}
    assert "changed" in first["fit"]
    assert second["validation"]["target"] == "adreno:750"


def test_what_a_device_does_otherwise_goes_too(tmp_path):
    calibration = {
        "device": "x",
        "driver": "y",
        "measures": [{"name": "border", "word": "ones", SECRET: 1}],
        "facts": [{"key": "border", "measured": "ones", "avoid": "textures", SECRET: SECRET}],
        "target_file": f"{SECRET}.toml",
    }
    target = tmp_path / f"{SECRET}.toml"
    target.write_text(
        f'title = "{SECRET}"\nbase = "adreno:750"\n[sources]\nmeasured = "m"\n[limits]\n'
        f'[measured]\n"copy.write" = {{ value = 2.5, source = "{SECRET}" }}\n'
        f'"{SECRET}" = {{ value = 3.5, source = "m" }}\n'
        '[[quirks]]\nname = "measured-textures"\ntext = "t"\n'
        f'source = "{SECRET}"\navoid = ["textures"]\n'
    )
    told = report_text(collect([_write(tmp_path, calibration), target]))
    assert SECRET not in told
    first, second = (part["content"] for part in json.loads(told)["parts"])
    assert first["facts"] == [{"key": "border", "measured": "ones", "avoid": "textures"}]
    assert second["measured"] == {"copy.write": {"value": 2.5}}
    assert second["quirks"] == [{"name": "measured-textures", "text": "t", "avoid": ["textures"]}]
