"""Includes of the C++ runtime go downwards only, from room to room."""

import re
from pathlib import Path

import adrenoc

NATIVE = Path(adrenoc.__file__).parent / "native"
# From top to bottom, each with what it is for.  A room includes from itself and from lines below;
# neighbours on a line know nothing of each other.
PLUGIN = (
    ("api", "rpc", "trials"),  # what TVM and Python call; files of a session; the tuner's trials
    ("clml", "generate", "modules"),  # regions of OpenCL ML; tokens; modules of kernels, and builds
    ("launch",),  # kernels, launches, copies, and ways to repeat them
    ("programs",),  # texts of kernels, built programs and their cache
    ("opencl",),  # the library, the device, its memory
    ("files",),  # mapped, private and stored files, and a format of tensors
    ("base",),  # what needs nothing else
)
# The runtime without Python has these on top of the plug-in's.
RUNTIME = (("c_api",), ("model",), ("proof",), ("bundle", "machine", "text"))


def _rank(layers: tuple[tuple[str, ...], ...]) -> dict[str, int]:
    return {room: place for place, line in enumerate(layers) for room in line}


def _wrong(source: Path, layers: tuple[tuple[str, ...], ...]) -> list[str]:
    rank = _rank(layers)
    wrong = []
    for path in sorted(source.rglob("*")):
        if path.suffix not in (".cc", ".h", ".def"):
            continue
        room = path.relative_to(source).parts[0]
        for included in re.findall(r'^#include "(\w+)/', path.read_text(), re.MULTILINE):
            if included not in rank or included == room:
                continue
            if rank[included] <= rank[room]:
                wrong.append(f"{path.relative_to(source)} includes from {included}/")
    return wrong


def test_every_source_of_the_plug_in_is_in_a_room():
    assert {path.name for path in (NATIVE / "src").iterdir()} == _rank(PLUGIN).keys()


def test_every_source_of_the_runtime_is_in_a_room():
    source = NATIVE / "runtime/src"
    assert {path.name for path in source.iterdir()} == _rank(RUNTIME).keys()


def test_the_plug_in_includes_downwards():
    assert _wrong(NATIVE / "src", PLUGIN) == []


def test_the_runtime_includes_downwards():
    assert _wrong(NATIVE / "runtime/src", (*RUNTIME, *PLUGIN)) == []


def test_the_provider_of_onnxruntime_stands_on_the_c_api():
    # What it takes of the runtime's sources needs nothing else.
    included = {
        room
        for path in sorted((NATIVE / "onnxruntime").glob("*.[ch]*"))
        for room in re.findall(r'^#include "(\w+)/', path.read_text(), re.MULTILINE)
    }
    assert included == {"base"}


def test_files_lie_beside_what_they_implement():
    # `x.cc` includes `ROOM/x.h` of its own room, where there is one.
    for path in (NATIVE / "src").rglob("*.h"):
        code = path.with_suffix(".cc")
        if code.exists():
            assert f'#include "{path.parent.name}/{path.name}"' in code.read_text(), code


def test_sources_of_the_plug_in_can_share_a_unit():
    """`compile_plugin.py` puts any of them into one: names of theirs alone would clash."""
    places: dict[tuple[str, str], set[str]] = {}
    for path in sorted((NATIVE / "src").rglob("*.[ch]*")):
        text = path.read_text()
        spaces = " ".join(re.findall(r"^namespace ([\w:]+) {", text, re.MULTILINE))
        for name in re.findall(r"^(?:static )?constexpr [^=;({]*?\b(k[A-Z]\w*)\b", text, re.M):
            places.setdefault((spaces, name), set()).add(path.name)
    assert len(places) > 50
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
