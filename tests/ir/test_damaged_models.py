"""Files that random damage (scripts/fuzz_models) broke the importer with: each ends in an error."""

import onnx
import pytest
from fuzz import harness, mutate

from adrenoc.base import errors
from tests.ir import fuzz_judges
from tests.ir.damaged_onnx import CASES, joined, looping, scanning
from tests.ir.planning import plan_as_user
from tests.models import network


@pytest.mark.parametrize("name", CASES)
def test_damaged_onnx(tmp_path, name):
    make, said = CASES[name]
    made = make()
    content = made if isinstance(made, bytes) else made.SerializeToString()
    (tmp_path / "model.onnx").write_bytes(content)
    with pytest.raises(errors.AdrenocError, match=said) as caught:
        plan_as_user(tmp_path / "model.onnx")
    assert caught.value.hint


def test_what_the_damaged_control_flow_was_made_from_is_sound(tmp_path):
    for number, model in enumerate((scanning(), joined(), looping(takes=3))):
        onnx.save(model, tmp_path / f"{number}.onnx")
        plan_as_user(tmp_path / f"{number}.onnx")


@pytest.mark.parametrize("number", range(24))
def test_random_damage_ends_in_a_result_or_an_error(tmp_path, number):
    """The same damage each time; thousands of others: scripts/fuzz_models."""
    seeds = [
        ("mixed_small.tflite", network("mixed_small", size=17, width=0.5)),
        ("squeezenet.onnx", network("squeezenet", size=32, width=0.25)),
    ]
    name, content = mutate.case(seeds, seed=1, number=number)
    (tmp_path / name).write_bytes(content)
    outcome = harness.judge(tmp_path / name, raises=True)
    assert not outcome.is_finding


@pytest.mark.parametrize(
    ("judges", "kind"),
    [
        (fuzz_judges.spin, "hang"),
        (fuzz_judges.wait, "planned"),
        (fuzz_judges.fill, "memory"),
        (fuzz_judges.end, "died"),
    ],
)
def test_what_becomes_of_a_case_is_seen(tmp_path, monkeypatch, judges, kind):
    """A case that waits for the processor longer than the limit has not used it up."""
    monkeypatch.setattr(harness, "LIMIT_S", 1.0)
    monkeypatch.setattr(harness, "LIMIT_BYTES", 1 << 28)
    found = harness.run(range(2), lambda n: ("m.onnx", str(n).encode()), tmp_path, judges)
    assert [outcome.kind for _, outcome in found] == [kind, "planned"]
