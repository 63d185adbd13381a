"""Small sound models to damage: tests of operators, and networks, of both formats."""

import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

_LARGEST = 1 << 20
_RANDOM_GRAPHS = 400


def load(only: str | None, folder: Path | None) -> list[tuple[str, bytes]]:
    """(name, content) of each seed, in an order that is the same each time.

    `only` is a format; `folder` holds more models, of up to a mebibyte each.
    """
    made = [*_node_tests(), *_tflite_operators(), *_networks()]
    made += [*_contrib_operators(), *_random_graphs()]
    if folder is not None:
        files = sorted(p for p in folder.rglob("*") if p.suffix in (".onnx", ".tflite"))
        made += [(p.name, p.read_bytes()) for p in files if p.stat().st_size <= _LARGEST]
    return [(name, content) for name, content in made if only is None or name.endswith(only)]


def _node_tests() -> list[tuple[str, bytes]]:
    from tests.onnx_backend.cases import load_cases

    return [
        (f"{case.name}.onnx", case.model) for case in load_cases().values() if not case.excluded
    ]


def _tflite_operators() -> list[tuple[str, bytes]]:
    try:
        from tests.tflite.cases import load_recipes
    except ImportError:  # LiteRT, which writes them, is not there
        return []
    made = []
    for name, recipe in load_recipes().items():
        if recipe.build is not None:
            model, _ = recipe.build(np.random.default_rng(0))[0].finish()
            made.append((f"{name}.tflite", model))
    return made


def _networks() -> list[tuple[str, bytes]]:
    from model_zoo import onnx_models, tflite_models

    made = []
    for name, make in onnx_models.MODELS.items():
        model = make(size=32, width=0.25, classes=4)
        made.append((f"{name}.onnx", model.SerializeToString()))
    for name, make in tflite_models.MODELS.items():
        content = make(size=32, width=0.25, classes=4)
        made += [(f"{name}.tflite", content)] * 30  # as often as thirty single operators
    return [(name, content) for name, content in made if len(content) <= _LARGEST]


def _contrib_operators() -> list[tuple[str, bytes]]:
    """Operators of onnxruntime's domain, one a model."""
    from tests.ir.test_import_contrib import CASES, save

    with tempfile.TemporaryDirectory() as folder:
        return [
            (f"{name}.onnx", save(name, recipe, Path(folder)).read_bytes())
            for name, recipe in CASES.items()
        ]


def _random_graphs() -> list[tuple[str, bytes]]:
    """Graphs of some ten operators, as scripts/verify random-graphs draws them."""
    from tests.host.random_graphs.draw import draw_case

    drawn = [draw_case(random.Random(f"fuzz/{n}").randint) for n in range(_RANDOM_GRAPHS)]
    return [(f"graph{n}.onnx", _written(case.ops.save)) for n, case in enumerate(drawn)]


def _written(save: Callable[[Path], None]) -> bytes:
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        save(Path(file.name))
        return Path(file.name).read_bytes()
