"""What `compile` prints of its options."""

from importlib.metadata import PackageNotFoundError

import pytest

from adrenoc.check import runtimes
from adrenoc.cli import console
from adrenoc.cli.show_made import list_options, list_unknown
from adrenoc.ir.options import CompileOptions, ResolvedOptions


def test_states_and_shapes_are_shown_by_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    options = CompileOptions(
        shapes=(("past", (1, 4, 32, 8)),), states=(("past", "present"),), forbid=("cpu",)
    )
    origins = tuple((name, "the test") for name in ("shapes", "states", "forbid", "winograd"))
    console.draw(list_options(ResolvedOptions(options=options, origins=origins)))
    said = " ".join(capsys.readouterr().out.split())
    assert "past:1,4,32,8" in said
    assert "past:present" in said
    assert "forbid cpu" in said


@pytest.mark.parametrize(
    ("kind", "package"), [("onnx", "onnxruntime"), ("tflite", "ai-edge-litert")]
)
def test_what_no_reference_can_tell_is_told_in_a_line(
    monkeypatch: pytest.MonkeyPatch, kind: str, package: str
) -> None:
    def lack(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(runtimes, "version", lambda name: "1.0")
    assert list_unknown(kind) == []
    monkeypatch.setattr(runtimes, "version", lack)
    ((_, said),) = list_unknown(kind)
    assert f"{package}, which computes the reference for this model, is not installed" in said
    assert "pip install" in said
