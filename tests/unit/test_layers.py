"""Imports go downwards only.  A new module goes into LAYERS, at the lowest place that it can."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import adrenoc

PACKAGE = Path(adrenoc.__file__).parent

# From top to bottom.  Names are modules or packages of adrenoc; a line imports only from the lines
# below it, a package also from itself, and neighbours on a line know nothing of each other.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("__main__",),
    ("cli",),
    ("check_layers", "check_accuracy", "check_model", "report"),
    ("app_check",),
    ("package",),
    ("make", "doctor", "runtime_build", "tune"),
    ("make_buckets",),
    ("compiler",),
    ("pipeline",),
    ("passes", "build"),
    ("rules",),
    ("kernels",),
    ("graph",),
    ("reference", "cache", "device", "clml"),
    ("buckets",),
    ("importers", "rewrites", "inputs", "bundle", "link"),
    ("operand", "relax"),
    ("tvmapi", "native", "elf", "opencl_source", "opencl_compact", "opencl_sharing"),
    ("android_manifest", "runtime_toolchain"),
    ("licenses", "shape_ranges"),
    ("options",),
    ("target", "tuning_merge", "bundle_params", "bundle_tar"),
    ("tuning_log",),
    ("verdict",),
    ("common_gpu", "roofline", "allocation"),
    ("gpu", "sourced", "decision", "manifest", "layout", "precision_policy", "ndk", "half"),
    ("outputs",),
    ("owned_folder",),
    ("launches", "out_of_memory", "host_memory", "kept", "temporary"),
    ("proc", "files"),
    ("errors", "names", "reporter", "spelling"),
    ("json_text", "printable", "aside", "tar_members"),
)
# Edges that go downwards and are wrong nevertheless.
FORBIDDEN = {
    # It reads the manifest; what was compiled how is none of its business.
    "device": {"importers", "kernels", "graph", "link", "inputs"},
    # Planning begins from Relax, whoever wrote it.
    **{unit: {"importers", "rewrites"} for unit in ("passes", "rules", "kernels", "graph")},
}
TVM = {
    "importers",
    "kernels",
    "graph",
    "make_buckets",
    "rules",
    "passes",
    "pipeline",
    "relax",
    "rewrites",
    "build",
    "check_accuracy",
    "clml",
    "compiler",
    "device",
    "doctor",
    "native",
    "opencl_source",
    "tune",
    "tvmapi",
}
ONLY_IN = {
    "tvm": TVM,
    "tvm_ffi": TVM,
    "click": {"cli"},
    "rich": {"cli"},
    "elftools": {"elf"},
    "ziglang": {"link"},
    "adbutils": {"device"},
    "onnxruntime": {"reference", "importers"},
    "onnx": {"importers", "reference"},
}


def _unit(module: str) -> str:
    """`adrenoc.kernels.conv2d` -> the name that LAYERS has for it."""
    return module.split(".")[1]


def _modules() -> dict[str, ast.Module]:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = ("adrenoc", *path.relative_to(PACKAGE).with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name != "adrenoc":
            found[name] = ast.parse(path.read_text(encoding="utf-8"))
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


def _edges() -> dict[str, set[str]]:
    modules = _modules()
    return {name: set(_imports(tree, known=set(modules))) for name, tree in modules.items()}


def test_every_module_has_a_layer() -> None:
    placed = {unit for layer in LAYERS for unit in layer}
    homeless = {name for name in _modules() if _unit(name) not in placed}
    assert not homeless, f"put them into LAYERS of {Path(__file__).name}: {sorted(homeless)}"


def test_imports_go_downwards() -> None:
    depth = {unit: number for number, layer in enumerate(LAYERS) for unit in layer}
    wrong = []
    for importer, imported in _edges().items():
        above = _unit(importer)
        for name in imported:
            if not name.startswith("adrenoc."):
                continue
            below = _unit(name)
            if above == below:
                continue
            if depth[below] <= depth[above] or below in FORBIDDEN.get(above, set()):
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
        if (top := name.partition(".")[0]) in ONLY_IN and _unit(importer) not in ONLY_IN[top]
    ]
    assert not wrong, wrong


def test_rich_is_where_things_are_drawn() -> None:
    users = {
        name
        for name, imported in _edges().items()
        if any(other.partition(".")[0] == "rich" for other in imported)
    }
    assert users == {"adrenoc.cli.console", "adrenoc.cli.show_tune"}


def test_only_files_reads_the_environment() -> None:
    """The native loader sets one variable for the OpenCL library; nobody else touches any."""
    users = set()
    for name, tree in _modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv"}:
                users.add(name)
    assert users == {"adrenoc.files", "adrenoc.native"}
