"""Facts about a GPU are data: what estimates reckon with, where it is from, and who reads it."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import adrenoc
from adrenoc.base.errors import TargetError
from adrenoc.base.files.read import data_folder, read_toml
from adrenoc.target.cost.read import CostTables, families
from adrenoc.target.target import list_targets, load_target
from tests.sources import trees
from tests.unit.target_files import copy_targets, edit

PACKAGE = Path(adrenoc.__file__).parent
FAMILIES = PACKAGE / "kernels" / "families"
FILES = sorted(data_folder("targets").glob("cost/*.toml"))

# A number in families' rules, tiles, records and shared files that is no target's, and why.
ALLOWED = {
    ("attention/attention_rule.py", "_ROLES"): "ranks of tensors",
    ("conv/conv_tile.py", "MOST_TILES"): "how much is searched again, on this computer",
    ("conv/conv_tile.py", "_best_tiles"): "size of a cache of this process",
    ("conv_nd/operator.py", "MOST_EMPTY_PLACES"): "weights that any memory holds",
    ("conv_nd/operator.py", "_refuses_transposed"): "the same, for each tap",
    ("maps/body_rule.py", "body_rule"): "how many operators a name of a kernel holds",
    ("matmul/operator.py", "_refuses"): "ranks of tensors",
    ("reduce/norm_rule.py", "_affine"): "inputs of the operator",
    ("reduce/operator.py", "NORM_OPERATIONS"): "operations of the mathematics",
    ("reduce/operator.py", "RMS_NORM_OPERATIONS"): "operations of the mathematics",
    ("reduce/softmax_rule.py", "softmax_rule"): "times that the kernel reads a line",
    ("shared/byte_costs.py", "_KILO"): "a unit",
    ("shared/conv_geometry.py", "_columns"): "size of a cache of this process",
    ("shared/counts.py", "SOFTMAX_OPERATIONS"): "operations of the mathematics",
    ("shared/dot_products.py", "WORD_BYTES"): "bytes of 32 bits",
    ("shared/dot_products.py", "MOST_PRODUCTS"): "sums of bytes that stay within 32 bits",
    ("shared/integer_bias.py", "_LARGEST_BYTE"): "limits of 8 and of 32 bits",
    ("shared/machine.py", "MHZ_A_GHZ"): "a unit",
    ("shared/rounding.py", "PART_ELEMENTS"): "how much this computer computes with at a time",
    ("shared/scored.py", "MOST_KNOWN"): "size of a cache of this process",
}
MOST_ALLOWED = 20
PLAIN = {-1, 0, 1, 2, 0.5}
"""Numbers that state no figure: none, one, both, pairs, halves."""


def _of_rules() -> list[Path]:
    """All but kernels, whose numbers are the form of their text, and what data of about one
    becomes, whose numbers are those of chance."""
    names = ("_rule.py", "_tile.py", "operator.py", "operators.py")
    return [
        path
        for path in sorted(FAMILIES.rglob("*.py"))
        if path.name.endswith(names)
        or path.name.startswith("conv_tile")
        or (path.parent.name == "shared" and path.name != "typical.py")
    ]


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


def test_numbers_of_rules_are_those_of_no_gpu() -> None:
    found = {
        (str(path.relative_to(FAMILIES)), name) for path in _of_rules() for name in _figures(path)
    }
    assert found == set(ALLOWED)
    assert len(ALLOWED) <= MOST_ALLOWED


def test_a_figure_is_found_wherever_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "any_tile.py"
    path.write_text("A, B = 1, 7\n\ndef f(x: int) -> float:\n    return max(x, 1.15) * 2\n")
    assert _figures(path) == {"A", "f"}


def _bound(function: ast.FunctionDef) -> dict[str, set[str]]:
    """Variables of a function that hold a table, and which ones they may hold."""
    kinds: dict[str, set[str]] = {}
    for name, record in families().items():
        kinds.setdefault(record.__name__, set()).add(name)
    held: dict[str, set[str]] = {}
    for argument in (*function.args.args, *function.args.kwonlyargs):
        if isinstance(argument.annotation, ast.Name) and argument.annotation.id in kinds:
            held[argument.arg] = kinds[argument.annotation.id]
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign):
            continue
        pairs = [(node.targets[0], node.value)]
        if isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = list(zip(node.targets[0].elts, node.value.elts, strict=False))
        for target, value in pairs:
            if isinstance(target, ast.Name) and isinstance(value, ast.Attribute):
                held.setdefault(target.id, set()).update({value.attr} & families().keys())
    return held


def _reads() -> set[tuple[str, str]]:
    """Each (table, key) that some code reads: `cost.key`, where `cost` is known to be a table."""
    found = set()
    for path, tree in trees().items():
        if path.parent.name == "cost":
            continue
        for function in (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)):
            held = _bound(function)
            for node in ast.walk(function):
                if not isinstance(node, ast.Attribute):
                    continue
                if isinstance(node.value, ast.Name):
                    found |= {(table, node.attr) for table in held.get(node.value.id, ())}
                elif isinstance(node.value, ast.Attribute):
                    found.add((node.value.attr, node.attr))
    return found


def test_every_key_is_read_by_somebody() -> None:
    read = _reads()
    keys = {
        (t, field.name) for t, record in families().items() for field in dataclasses.fields(record)
    }
    assert (
        keys - read - {("work_groups", "most_threads"), ("work_groups", "fewest_threads")} == set()
    )
    assert {key for table, key in keys if table == "work_groups"} == {
        "most_threads",
        "fewest_threads",
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_source_says_when(path: Path) -> None:
    for name, source in read_toml(path).get("sources", {}).items():
        assert {"text", "date"} <= source.keys(), name
        assert source["text"].startswith("fitted") <= ("command" in source), name


@pytest.mark.parametrize("target", list_targets(), ids=lambda target: target.name)
def test_every_constant_has_a_source(target) -> None:
    known = {
        f"cost.{name}.{field.name}"
        for name, record in families().items()
        for field in dataclasses.fields(record)
    }
    assert known == dict(target.cost_sources).keys()
    assert all("@" not in source for _, source in target.cost_sources)
    assert re.search(r"20\d\d-\d\d-\d\d", target.source_of("cost.conv_local.k_step_slots"))


def test_who_reckons_with_what() -> None:
    named = {"adreno:a660": "a6xx", "adreno:sm8650": "a7xx", "host:a750": "a7xx"}
    named |= {"adreno": "unknown", "adreno:a830": "a8xx"}
    assert {name: load_target(name).cost.name for name in named} == named
    assert load_target("host:h100").cost.name == "unknown and its own"
    assert {path.stem for path in FILES} == {"ir3", *named.values()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return copy_targets(tmp_path)


OWN = (
    '[cost]\nbase = "a7xx"\n\n[cost.conv_local]\n'
    'k_step_slots = { value = 41, source = "measured" }\n'
)


def test_a_gpu_has_values_of_its_own_over_those_of_its_base(folder: Path) -> None:
    before = load_target("adreno:a750", folder=folder)
    edit(folder / "gpu" / "750.toml", r'^\[cost\]\nbase = "a7xx"\n', OWN)
    after = load_target("adreno:a750", folder=folder)
    assert after.cost.conv_local == dataclasses.replace(before.cost.conv_local, k_step_slots=41.0)
    assert after.cost.pipes == before.cost.pipes
    assert after.cost.name == "a7xx and its own"
    assert after.source_of("cost.conv_local.k_step_slots") == "measured"
    assert load_target("adreno:a740", folder=folder).cost == before.cost


def test_a_file_between_changes_those_that_build_on_it(folder: Path) -> None:
    text = '\n[gemv]\nbarrier_clocks = { value = 90, source = "s" }\n'
    path = folder / "cost" / "a7xx.toml"
    path.write_text(path.read_text() + text)
    assert load_target("adreno:a750", folder=folder).cost.gemv.barrier_clocks == 90
    assert load_target("adreno:a660", folder=folder).cost.gemv.barrier_clocks == 60


def test_the_digest_follows_values_and_not_prose(folder: Path) -> None:
    path = folder / "cost" / "ir3.toml"
    before = load_target("adreno:a750", folder=folder).digest()
    assert before == load_target("adreno:a750").digest()
    edit(path, r'^text = "fitted', 'text = "also fitted')
    assert load_target("adreno:a750", folder=folder).digest() == before
    edit(path, r"^(k_step_slots = \{ value = )[\d.]+", r"\g<1>47.5")
    assert load_target("adreno:a750", folder=folder).digest() != before
    assert load_target("adreno", folder=folder).digest() != load_target("adreno").digest()


@pytest.mark.parametrize(
    ("file", "pattern", "text", "message"),
    [
        (
            "ir3",
            r"^k_step_slots.*\n",
            "",
            'key "conv_local.k_step_slots": missing, expected { value',
        ),
        (
            "ir3",
            r"^k_step_slots",
            "k_step_slot",
            'key "conv_local.k_step_slot": unknown key (did you mean "k_step_slots"?)',
        ),
        ("ir3", r"^\[gemv\]", "[gemm]", 'key "gemm": unknown key (did you mean "gemv"?)'),
        (
            "ir3",
            r"^(k_step_slots = \{ value = )[\d.]+",
            r"\1-4.0",
            'key "conv_local.k_step_slots": seen -4.0, expected a number above 0',
        ),
        (
            "ir3",
            r"^(waiting_weights = \{ value = )\d+",
            r"\g<1>3.5",
            'key "conv_local.waiting_weights": seen 3.5, expected a whole number above 0',
        ),
        (
            "ir3",
            r"^(unrolls = \{ value = )\[.*?\]",
            r"\1[]",
            'key "conv_local.unrolls": seen [], expected a list of whole numbers above 0',
        ),
        (
            "ir3",
            r'^(k_step_slots = .*) source = "@local"',
            r'\1 source = "@locals"',
            'seen "@locals" (did you mean "local"?)',
        ),
        (
            "ir3",
            r"^date = .*",
            'date = "soon"',
            "key \"sources.local.date\": seen 'soon', expected",
        ),
        ("ir3", r"^command = .*", "", ""),
        ("ir3", r"^title.*", "", 'key "title": missing'),
        (
            "a7xx",
            r'^base = "ir3"',
            'base = "ir4"',
            'key "base": seen \'ir4\' (did you mean "ir3"?)',
        ),
        ("a7xx", r'^base = "ir3"', 'base = "a7xx"', "key \"base\": seen 'a7xx', expected a file"),
        ("a7xx", r'^base = "ir3"', "", 'key "pipes.wave_threads": missing'),
        (
            "ir3",
            r"^title",
            'base = "a7xx"\ntitle',
            "expected a file that does not build on this one",
        ),
    ],
)
def test_a_wrong_cost_file_is_refused_by_file_and_key(
    folder: Path, file: str, pattern: str, text: str, message: str
) -> None:
    edit(folder / "cost" / f"{file}.toml", pattern, text)
    if not message:
        load_target("adreno:a750", folder=folder)
        return
    with pytest.raises(TargetError) as caught:
        load_target("adreno:a750", folder=folder)
    assert str(folder / "cost" / f"{file}.toml") in caught.value.message
    assert message in caught.value.message
    assert "adrenoc targets" in caught.value.hint


@pytest.mark.parametrize(
    ("pattern", "text", "message"),
    [
        (r'^base = "a7xx"', 'base = "a9xx"', "key \"cost.base\": seen 'a9xx' (did you mean"),
        (r'^base = "a7xx"', "base = 7", 'key "cost.base": seen 7, expected a text'),
        (r'^base = "a7xx"', "bases = 7", 'key "cost.bases": unknown key (did you mean "base"?)'),
        (
            r'^base = "a7xx"',
            "conv_local = 7",
            'key "cost.conv_local": seen 7, expected a table [cost.conv_local]',
        ),
        (
            r'^\[cost\]\nbase = "a7xx"\n',
            OWN.replace("k_step_slots", "k_step_slot"),
            'key "cost.conv_local.k_step_slot": unknown key (did you mean "k_step_slots"?)',
        ),
        (
            r'^\[cost\]\nbase = "a7xx"\n',
            OWN.replace(', source = "measured"', ""),
            'key "cost.conv_local.k_step_slots": the value has no source',
        ),
    ],
)
def test_wrong_constants_of_a_gpu_are_refused_by_its_file(
    folder: Path, pattern: str, text: str, message: str
) -> None:
    path = folder / "gpu" / "750.toml"
    edit(path, pattern, text)
    with pytest.raises(TargetError) as caught:
        load_target("adreno:a750", folder=folder)
    assert str(path) in caught.value.message
    assert message in caught.value.message


def test_a_gpu_that_names_no_table_has_the_unknown_one(folder: Path) -> None:
    edit(folder / "gpu" / "750.toml", r'^\[cost\]\nbase = "a7xx"\n', "")
    assert load_target("adreno:a750", folder=folder).cost.name == "unknown"


def test_files_are_read_by_name(folder: Path) -> None:
    cost, sources = CostTables(folder).read_named("ir3")
    assert cost.conv_local.unrolls == (1, 2, 4)
    assert len(sources) == sum(len(dataclasses.fields(record)) for record in families().values())
