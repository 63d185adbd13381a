"""Facts about a GPU are data: what estimates reckon with, where it is from, and who reads it."""

import ast
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import adrenoc
from adrenoc.base.files.read import data_folder, read_toml
from adrenoc.target.cost import CostTables, families
from adrenoc.target.gpu import Limits, Performance, Quirk
from adrenoc.target.target import list_targets, load_target
from tests.sources import attributes
from tests.unit.target_files import OWN_COST, copy_targets, edit

PACKAGE = Path(adrenoc.__file__).parent
FAMILIES = PACKAGE / "kernels" / "families"
FILES = sorted(data_folder("targets").glob("cost/*.toml"))

ALLOWED = {
    "units, and bits and bytes of numbers": (
        "BITS BYTE_BITS MHZ_A_GHZ WORD_BITS WORD_BYTES _KILO _LARGEST_BYTE _SIGNS"
    ),
    "operations of the mathematics": (
        "NORM_OPERATIONS RMS_NORM_OPERATIONS SOFTMAX_OPERATIONS TAPS typical_norm"
    ),
    "ranks and inputs of operators": "_ROLES _affine _refuses _refuses_transposed",
    "what integers and floats hold": "MOST MOST_GROUP MOST_PRODUCTS _LEAST_TOTAL _count_needed",
    "what this computer keeps, searches or computes at a time": (
        "MOST_KNOWN MOST_TILES _MOST_PRODUCTS _best_tiles _columns _multiply_matrices"
    ),
    "draws of what data of about one becomes": "ROWS _BEYOND_CHANCE _FEW _LOOKED_AT _PART",
    "what any memory holds": "MOST_EMPTY_PLACES _LEAST_LOCAL_BYTES",
    "the form of a kernel's text": (
        "ALIKE AT_ONCE FIRST_PART MAX_PIXELS MOST_BLOCKS_A_PART MOST_FOLDED MOST_PHASES MOST_ROWS "
        "PIXELS_AT_ONCE TEXELS_AT_ONCE UNROLLED_FOLDS UNROLLED_ROWS UNROLLED_TAPS WIDEST_ROW "
        "_DIVISION_TEXELS _FOLD_TEXELS _finish _take_part body_rule softmax_rule work_of"
    ),
}
"""Constants and functions of families that have a number that is no target's, by why."""
MOST_ALLOWED = 56
PLAIN = {-1, 0, 1, 2, 0.5}
"""Numbers that state no figure: none, one, both, pairs, halves."""


def _numbers(tree: ast.AST, owner: str = "") -> Iterator[tuple[str, float]]:
    """Numbers with the name of the function or the constant that they stand in."""
    for node in ast.iter_child_nodes(tree):
        named = owner
        if isinstance(node, ast.FunctionDef):
            named = node.name
        elif isinstance(node, ast.Assign) and not owner:
            first = node.targets[0]
            first = first.elts[0] if isinstance(first, ast.Tuple) else first
            named = first.id if isinstance(first, ast.Name) else ""
        is_axes = isinstance(node, ast.Call) and (
            isinstance(node.func, ast.Attribute) and node.func.attr in ("transpose", "sum")
        )
        if is_axes or isinstance(node, ast.Slice):
            continue
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            yield named, node.value
        yield from _numbers(node, named)


def _figures(path: Path) -> set[str]:
    """The names of all that has a number of its own."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {name for name, number in _numbers(tree) if number not in PLAIN}


def test_numbers_of_families_are_those_of_no_gpu():
    found = {name for path in sorted(FAMILIES.rglob("*.py")) for name in _figures(path)}
    allowed = {name for names in ALLOWED.values() for name in names.split()}
    assert found == allowed
    assert len(allowed) <= MOST_ALLOWED


def test_a_figure_is_found_wherever_it_stands(tmp_path):
    path = tmp_path / "any_tile.py"
    path.write_text("A, B = 1, 7\n\ndef f(x: int) -> float:\n    return max(x, 1.15) * 2\n")
    assert _figures(path) == {"A", "f"}


def test_every_key_is_read_by_somebody():
    records = ("cost.py", "conv_cost.py")
    read = set().union(*(n for path, n in attributes().items() if path.name not in records))
    keys = {
        (table, field.name)
        for table, record in families().items()
        for field in dataclasses.fields(record)
    }
    # Searches name these by their axis.
    named = {("work_groups", "most_threads"), ("work_groups", "fewest_threads")}
    assert {(table, key) for table, key in keys if key not in read} <= named
    assert {key for table, key in keys if table == "work_groups"} == {key for _, key in named}


@pytest.mark.parametrize("facts", [Limits, Performance, Quirk], ids=lambda cls: cls.__name__)
def test_every_fact_is_read_by_somebody(facts):
    """A key that nothing reads is work for whoever adds a GPU, and a promise that is not kept."""
    read = set().union(*(names for path, names in attributes().items() if path.name != "gpu.py"))
    own = {"dot_product", "constant_file_bytes", "constant_file_waves"}  # by properties beside them
    assert {field.name for field in dataclasses.fields(facts)} - read - own == set()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_source_says_when(path):
    for name, source in read_toml(path).get("sources", {}).items():
        assert {"text", "date"} <= source.keys(), name
        assert source["text"].startswith("fitted") <= ("command" in source), name


@pytest.mark.parametrize("target", list_targets(), ids=lambda target: target.name)
def test_every_constant_has_a_source(target):
    known = {
        f"cost.{name}.{field.name}"
        for name, record in families().items()
        for field in dataclasses.fields(record)
    }
    assert known == dict(target.cost_sources).keys()
    assert all("@" not in source for _, source in target.cost_sources)
    assert re.search(r"20\d\d-\d\d-\d\d", target.source_of("cost.conv_local.k_step_slots"))


def test_who_reckons_with_what():
    named = {"adreno:a660": "a6xx", "adreno:sm8650": "a7xx", "host:a750": "a7xx"}
    named |= {"adreno": "unknown", "adreno:a830": "a8xx"}
    assert {name: load_target(name).cost.name for name in named} == named
    assert load_target("host:h100").cost.name == "unknown and its own"
    assert {path.stem for path in FILES} == {"ir3", *named.values()}


@pytest.fixture
def folder(tmp_path) -> Path:
    return copy_targets(tmp_path)


def test_a_gpu_has_values_of_its_own_over_those_of_its_base(folder):
    before = load_target("adreno:a750", folder=folder)
    edit(folder / "gpu" / "750.toml", r'^\[cost\]\nbase = "a7xx"\n', OWN_COST)
    after = load_target("adreno:a750", folder=folder)
    assert after.cost.conv_local == dataclasses.replace(before.cost.conv_local, k_step_slots=41.0)
    assert after.cost.pipes == before.cost.pipes
    assert after.cost.name == "a7xx and its own"
    assert after.source_of("cost.conv_local.k_step_slots") == "measured"
    assert load_target("adreno:a740", folder=folder).cost == before.cost


def test_a_file_between_changes_those_that_build_on_it(folder):
    text = '\n[gemv]\nbarrier_clocks = { value = 90, source = "s" }\n'
    path = folder / "cost" / "a7xx.toml"
    path.write_text(path.read_text() + text)
    assert load_target("adreno:a750", folder=folder).cost.gemv.barrier_clocks == 90
    assert load_target("adreno:a660", folder=folder).cost.gemv.barrier_clocks == 60


def test_the_digest_follows_values_and_not_prose(folder):
    path = folder / "cost" / "ir3.toml"
    before = load_target("adreno:a750", folder=folder).digest()
    assert before == load_target("adreno:a750").digest()
    edit(path, r'^text = "fitted', 'text = "also fitted')
    assert load_target("adreno:a750", folder=folder).digest() == before
    edit(path, r"^(k_step_slots = \{ value = )[\d.]+", r"\g<1>47.5")
    assert load_target("adreno:a750", folder=folder).digest() != before
    assert load_target("adreno", folder=folder).digest() != load_target("adreno").digest()


def test_a_gpu_that_names_no_table_has_the_unknown_one(folder):
    edit(folder / "gpu" / "750.toml", r'^\[cost\]\nbase = "a7xx"\n', "")
    assert load_target("adreno:a750", folder=folder).cost.name == "unknown"


def test_files_are_read_by_name(folder):
    cost, sources = CostTables(folder).read_named("ir3")
    assert cost.conv_local.unrolls == (1, 2, 4)
    assert len(sources) == sum(len(dataclasses.fields(record)) for record in families().values())
