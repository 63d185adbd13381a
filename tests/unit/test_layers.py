"""Imports go downwards only.  A new module goes into LAYERS, at the lowest place that it can."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.sources import PACKAGE, attributes, trees

# From top to bottom.  Names are rooms (folders) or loose files of adrenoc; of `passes` and
# `families` the rooms within.  A line imports only from the lines below it, a room also from
# itself, and neighbours on a line know nothing of each other.  A family that is not named lies on
# the line of `families.*`: it needs nothing of the others.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("__main__",),
    ("cli",),
    ("project", "prove"),
    ("calibrate", "fleet", "report", "views"),
    ("check", "tune"),
    ("compile",),
    ("pipeline",),
    ("passes.verify",),
    ("passes.lower", "passes.fuse"),
    ("passes.place",),
    ("passes.precision", "passes.read"),
    ("passes.analyse", "passes.context"),
    ("families.operators", "families.row_products"),
    ("families.conv_nd", "families.expansion"),
    (
        "families.cache",
        "families.conv_transpose",
        "families.matmul",
        "families.n_bits",
        "families.pool",
        "families.separable",
        "families.winograd",
    ),
    ("families.*",),
    ("families.shared",),
    ("cpu",),
    ("device", "kernels", "mcu"),
    ("android", "clml", "codegen", "importers", "options", "rewrites"),
    ("bundle", "ir", "native", "target", "tuning_log"),
    ("files", "host", "relax"),
    ("decision", "errors", "reporter", "text", "tvmapi"),
)
SPLIT = ("passes", "families")
"""Rooms whose own rooms have places in LAYERS."""
# Edges that go downwards and are wrong nevertheless.
FORBIDDEN = {
    # It reads the manifest; what was compiled how is none of its business.
    "device": {"codegen", "clml", "importers", "ir", "options", "relax", "rewrites"},
    # Planning begins from Relax, whoever wrote it.
    **{key: {"importers", "rewrites"} for key in ("passes", "families", "kernels", "ir")},
}
TVM = {
    "check",
    "clml",
    "codegen",
    "compile",
    "device",
    "families",
    "importers",
    "ir",
    "kernels",
    "native",
    "passes",
    "pipeline",
    "relax",
    "rewrites",
    "tune",
    "tvmapi",
}
ONLY_IN = {
    "tvm": TVM,
    "tvm_ffi": TVM,
    "click": {"cli"},
    "rich": {"cli"},
    "elftools": {"android"},
    "ziglang": {"android"},
    "adbutils": {"device"},
    "onnxruntime": {"check", "importers"},
    "onnx": {"calibrate", "check", "importers", "mcu", "prove"},
}
MOST_LOOSE_FILES = 8
"""At the top of the package; everything else has a room."""


def _unit(module: str) -> str:
    """`adrenoc.families.conv.conv2d` -> the name that LAYERS has for it."""
    parts = module.split(".")
    return ".".join(parts[1:3]) if parts[1] in SPLIT and len(parts) > 2 else parts[1]


def _room(module: str) -> str:
    return module.split(".")[1]


def _modules() -> dict[str, ast.Module]:
    found = {}
    for path, tree in trees().items():
        parts = ("adrenoc", *path.with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name != "adrenoc":
            found[name] = tree
    return found


def _is_type_checking(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )


def _imports(tree: ast.AST, *, known: set[str]) -> Iterator[str]:
    """The modules that `tree` imports when it runs, functions included."""
    for node in ast.iter_child_nodes(tree):
        if _is_type_checking(node):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in known else node.module
        else:
            yield from _imports(node, known=known)


@cache
def _edges() -> dict[str, set[str]]:
    modules = _modules()
    return {name: set(_imports(tree, known=set(modules))) for name, tree in modules.items()}


def test_every_module_has_a_layer() -> None:
    placed = {unit for layer in LAYERS for unit in layer}
    homeless = {
        name
        for name in _modules()
        if _unit(name) not in {*placed, *SPLIT} and _room(name) != "families"
    }
    assert not homeless, f"put them into LAYERS of {Path(__file__).name}: {sorted(homeless)}"


def test_few_files_lie_loose() -> None:
    loose = sorted(path.name for path in PACKAGE.glob("*.py"))
    assert len(loose) <= MOST_LOOSE_FILES, loose


def test_imports_go_downwards() -> None:
    depth = {unit: number for number, layer in enumerate(LAYERS) for unit in layer}
    others = depth["families.*"]
    wrong = []
    for importer, imported in _edges().items():
        above = _unit(importer)
        if above in SPLIT:  # the docstring of a room of rooms
            continue
        for name in imported:
            if not name.startswith("adrenoc."):
                continue
            below = _unit(name)
            if above == below:
                continue
            forbidden = FORBIDDEN.get(_room(importer), set())
            if depth.get(below, others) <= depth.get(above, others) or below in forbidden:
                wrong.append(f"{importer} imports {name}")
    assert not wrong, wrong


def test_no_import_goes_in_a_circle() -> None:
    edges = {
        name: {other for other in imported if other.startswith("adrenoc.") and other != name}
        for name, imported in _top_level_edges().items()
    }
    while leaves := {name for name, imported in edges.items() if not imported & set(edges)}:
        edges = {name: imported for name, imported in edges.items() if name not in leaves}
    assert not edges, f"these import each other: {sorted(edges)}"


def _top_level_edges() -> dict[str, set[str]]:
    """What modules import as they load, and for their types: neither may go in a circle."""
    modules = _modules()
    edges = {}
    for name, tree in modules.items():
        outside = [
            node for node in tree.body if not isinstance(node, ast.FunctionDef | ast.ClassDef)
        ]
        blocks = [node.body if _is_type_checking(node) else [node] for node in outside]
        flat = ast.Module([statement for block in blocks for statement in block], [])
        edges[name] = set(_imports(flat, known=set(modules)))
    return edges


def test_packages_stay_where_they_belong() -> None:
    wrong = [
        f"{importer} imports {name}"
        for importer, imported in _edges().items()
        for name in imported
        if (top := name.partition(".")[0]) in ONLY_IN and _room(importer) not in ONLY_IN[top]
    ]
    assert not wrong, wrong


def test_rich_is_where_things_are_drawn() -> None:
    users = {
        name
        for name, imported in _edges().items()
        if any(other.partition(".")[0] == "rich" for other in imported)
    }
    assert users == {"adrenoc.cli.console", "adrenoc.cli.show_tune", "adrenoc.cli.tables"}


def test_only_files_reads_the_environment() -> None:
    """Loaders set what the OpenCL library, TVM, NumPy, onnxruntime and tokenizers read; nobody else
    touches any."""
    users = {str(path) for path, names in attributes().items() if names & {"environ", "getenv"}}
    loaders = {
        "compile/load_tvm.py",
        "device/tokenizer_process.py",
        "host/one_thread.py",
        "host/onnx_runtime.py",
        "native/__init__.py",
    }
    assert users == {"files/read.py", *loaders}
