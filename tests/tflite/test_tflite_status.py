"""The checked-in table of TFLite's operators holds, on a sample that is the same each time."""

import hashlib
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("ai_edge_litert")

import tflite

from adrenoc.base.errors import AdrenocError
from adrenoc.cli.main import main
from adrenoc.importers import import_model
from tests.onnx_backend.execute import Outcome, read_table, run_cases
from tests.tflite.cases import Recipe, load_recipes

TABLE = Path(__file__).with_name("status.json")

SAMPLE = 20
"""Cases a run; all of them: scripts/verify tflite-ops --jobs 2."""

WITHOUT_KERNEL = "STABLEHLO_"
"""Operators that LiteRT reads, and hands to its compiler: few have a kernel for the CPU."""


@pytest.fixture(scope="module")
def recipes() -> dict[str, Recipe]:
    return load_recipes()


def test_every_operator_has_a_case(recipes):
    kinds = [k for k, v in vars(tflite.BuiltinOperator).items() if isinstance(v, int)]
    tested = {r.operator for r in recipes.values()}
    assert not [k for k in kinds if k not in tested and not k.startswith(WITHOUT_KERNEL)]


def test_table_is_complete_and_holds_no_wrong_number(recipes):
    table = read_table(TABLE)
    assert sorted(table) == sorted(recipes)
    statuses = Counter(line.partition(":")[0] for line in table.values())
    assert set(statuses) <= {"passed", "refused", "excluded"}, statuses
    told = [name for name, line in table.items() if line != "passed" and ": " not in line]
    assert not told, f"no reason is given for {told}"
    for recipe in recipes.values():
        assert table[recipe.name].startswith("excluded") == bool(recipe.excluded), recipe.name


def test_all_that_passes_is_imported(recipes, tmp_path):
    """No sample, for this takes 20 ms a model."""
    table = read_table(TABLE)
    model, refused = tmp_path / "m.tflite", {}
    for name, recipe in recipes.items():
        model.write_bytes(recipe.case().model)
        try:
            import_model(model, shapes={})
        except AdrenocError as error:
            refused[name] = str(error)
    assert {name for name in refused if table[name] == "passed"} == set()


def test_resizes_of_quanta_have_litert_s_own_bits(recipes, plain_processes):
    cases = [
        recipe.case()
        for recipe in recipes.values()
        if recipe.operator == "RESIZE_BILINEAR" and recipe.exact and recipe.name.endswith("_10")
    ]
    seen: dict[str, str] = {}
    run_cases(cases, jobs=1, done=lambda case, outcome: seen.update({case.name: outcome.line()}))
    assert len(seen) == 9 and set(seen.values()) == {"passed"}, seen


def test_sample_agrees_with_the_table(recipes, plain_processes):
    table = read_table(TABLE)
    runnable = [r for r in recipes.values() if not r.excluded]
    sample = sorted(runnable, key=lambda r: hashlib.sha256(r.name.encode()).hexdigest())[:SAMPLE]
    seen: dict[str, Outcome] = {}
    cases = [r.case() for r in sample]
    run_cases(cases, jobs=1, done=lambda case, outcome: seen.update({case.name: outcome}))
    assert len(seen) == SAMPLE
    wrong = {n: o.line() for n, o in seen.items() if o.status != table[n].partition(":")[0]}
    assert not wrong


def test_tvm_says_nothing_of_its_own(recipes, tmp_path, capfd):
    """Of a lookup without bounds TVM prints that it may crash."""
    name = next(name for name, recipe in recipes.items() if recipe.operator == "MIRROR_PAD")
    model = tmp_path / "m.tflite"
    model.write_bytes(recipes[name].case().model)
    command = ["compile", str(model), "--device", "host", "-o", str(tmp_path / "m.adrenoc")]
    assert main(command) == 0
    assert "segfault" not in capfd.readouterr().err
