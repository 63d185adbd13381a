"""Compile, run and check many models, and print one table: verify models FOLDER_OR_FILES.

Each model is compiled for `adreno` (the operators, kernels and memory shown are of that bundle)
and for the device to run on, executed there, and compared with onnxruntime or LiteRT.  Inputs come
from an .npz of the same name beside the model where there is one, else from seeded random numbers;
the dimensions that a model leaves open are those of the arrays in that .npz.  "as reference" is a
model that is beyond the tolerance, but within one quantum, or no further from the reference than
the reference is from itself when it runs its other kernels: `adrenoc run --check` judges so too.
"at its floor" is one that stores halves and is beyond the tolerance by what ideal rounding costs,
where float32 is right.
"""

import argparse
import itertools
import resource
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from adrenoc.base.errors import CheckFailedError
from adrenoc.base.text.report import Table
from adrenoc.base.text.spelling import Figure
from scripts.verifying.commands import CommandError, adrenoc

SUFFIXES = (".onnx", ".tflite")
PASSED = ("agrees", "as reference", "at its floor", "compiles")
MOST_OVER_FLOOR = 1.2
COLUMNS = (
    "model",
    "preset",
    "texture/buffer/CPU",
    "in textures",
    "launches",
    "kernels",
    "pad/copy/layout",
    "compile",
    "peak memory",
    "run",
    "error",
    "floor",
    "CPU",
    "verdict",
)


@dataclass(kw_only=True)
class Row:
    """What one model with one preset gave: `cells` by their columns, what was not reached lacks.

    "floor" is what ideal rounding gives and how many times it we are, as root mean squares; "CPU"
    is all that the row took; figures but those of the run are of the target's bundle.
    """

    model: str
    preset: str
    verdict: str = "failed"
    error: str = ""
    cells: dict[str, str]


def main(words: Sequence[str] | None = None) -> int:
    """Verify and show; the exit code is 1 if any row did not pass."""
    from adrenoc.cli import console

    options = parse(words)
    rows = []
    for model, preset in itertools.product(find_models(options.paths), options.presets.split(",")):
        begun, cpu_s = time.monotonic(), children_s()
        row = Row(model=model.name, preset=preset, cells={})
        with tempfile.TemporaryDirectory(prefix="verify-models-") as folder:
            try:
                fill(row, model, options, Path(folder), begun + options.timeout)
            except CommandError as error:
                row.error = str(error)
        row.cells["CPU"] = f"{children_s() - cpu_s:.0f} s"
        rows.append(row)
        took = f"{time.monotonic() - begun:.0f} s"
        print(f"{row.verdict:<12} {row.model} {preset}, {took}  {row.error}", file=sys.stderr)
    shown = [{"model": r.model, "preset": r.preset, **r.cells, "verdict": r.verdict} for r in rows]
    cells = [[one.get(name, "-") for name in COLUMNS] for one in shown]
    told = tuple((*row[:2], *map(Figure, row[2:-1]), row[-1]) for row in cells)
    console.draw(Table(columns=COLUMNS, rows=told))
    for row in rows:
        if row.error:
            print(f"  {row.model} {row.preset}: {row.error}")
    passed = sum(row.verdict in PASSED for row in rows)
    print(f"{passed} of {len(rows)} passed")
    return 0 if passed == len(rows) else 1


def children_s() -> float:
    """Return the seconds of CPU of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", type=Path, nargs="+", help="model files, or folders of them")
    parser.add_argument("--presets", default="fp32,mixed", help="comma-separated (fp32,mixed)")
    parser.add_argument("--target", default="adreno", help="the target of the figures (adreno)")
    parser.add_argument("--device", default="host", help="the target that runs (host)")
    parser.add_argument("--on", help="where to run, as for adrenoc run")
    parser.add_argument("--compile-only", action="store_true", help="run nothing")
    parser.add_argument(
        "--numbers-only", action="store_true", help="compile for the device that runs alone"
    )
    parser.add_argument(
        "--tolerance",
        action="append",
        default=[],
        metavar="PRESET=X",
        help="largest error over the output's range, such as mixed=2e-2",
    )
    parser.add_argument("--timeout", type=float, default=3600.0, help="seconds for a row (3600)")
    return parser.parse_args(words)


def find_models(paths: Iterable[Path]) -> list[Path]:
    """Return the files named and the models in the folders named, the smallest first."""
    found: dict[Path, None] = {}
    for path in paths:
        inside = [p for p in path.iterdir() if p.suffix in SUFFIXES] if path.is_dir() else [path]
        found.update(dict.fromkeys(inside))
    return sorted(found, key=lambda p: (p.stat().st_size if p.exists() else 0, p.name))


def fill(row: Row, model: Path, options: argparse.Namespace, folder: Path, until: float) -> None:
    """Compile twice, run once, compare, and put what is told into the row."""
    if not options.numbers_only:
        made = compile_for(options.target, row, model, options, folder, until)
        row.cells.update(list_figures(made))
        row.verdict = "compiles" if options.compile_only else row.verdict
    if not options.compile_only:
        made = compile_for(options.device, row, model, options, folder, until)
        check(row, made, model, options, folder, until)


def compile_for(
    device: str, row: Row, model: Path, options: argparse.Namespace, folder: Path, until: float
) -> Any:
    """Compile with all checks of the IR, and return what the command tells."""
    words = ["compile", str(model), "--device", device, "--preset", row.preset, "--no-cache"]
    words += ["--set", "check_ir=true", "-o", str(folder / f"{device.replace(':', '-')}.adrenoc")]
    for name, shape in open_shapes(model).items():
        words += ["--shape", f"{name}:{','.join(map(str, shape))}"]
    return adrenoc(*words, until=until)


def list_figures(made: Any) -> dict[str, str]:
    """Return the cells that the manifest of a bundle fills."""
    manifest = made["manifest"]
    counts = manifest["statistics"]
    tensors = counts["tensors_texture"] + counts["tensors_buffer"]
    borders = len(manifest["inputs"]) + len(manifest["outputs"])
    return {
        "texture/buffer/CPU": "/".join(str(counts[f"nodes_{p}"]) for p in _PLACES),
        "in textures": f"{counts['tensors_texture'] / max(1, tensors - borders):.0%}",
        "launches": str(sum(kernel["calls"] for kernel in manifest["kernels"])),
        "kernels": str(len(manifest["kernels"])),
        "pad/copy/layout": "/".join(str(counts[f"{kind}_kernels"]) for kind in _MOVES),
        "compile": f"{made['time_ms'] / 1000:.1f} s",
        "peak memory": f"{manifest['memory']['peak_bytes'] / 2**20:.1f} MiB",
    }


_PLACES, _MOVES = ("texture", "buffer", "cpu"), ("pad", "copy", "layout")


def check(
    row: Row, made: Any, model: Path, options: argparse.Namespace, folder: Path, until: float
) -> None:
    """Run and compare with the reference; beyond it, with what rounding alone gives."""
    from adrenoc.check.accuracy.result import Floor

    inputs, values = folder / "inputs.npz", made["manifest"]["options"]["values"]
    np.savez(inputs, **inputs_of(model, made["manifest"]["inputs"]))
    words = ["run", made["path"], "--check", str(model), "--input", str(inputs), "--repeat", "1"]
    words += [] if options.on is None else ["--on", options.on]
    chosen = dict(text.split("=", 1) for text in options.tolerance)
    words += ["--tolerance", chosen[row.preset]] if row.preset in chosen else []
    codes = (0, CheckFailedError.exit_code)
    told = adrenoc(*words, until=until, codes=codes)
    checked = told["check"]
    tensors = checked["tensors"]
    row.error = "; ".join(
        f"output {t['name']}: {t['reason'] or t['accepted_as']}"
        for t in tensors
        if t["accepted_as"] or not t["passed"]
    )
    row.cells["run"] = f"{told['times']['p50_ms']:.0f} ms"
    worst = max((np.inf if t["bad_values"] else t["range_error"] for t in tensors), default=0.0)
    row.cells["error"] = f"{worst:.1e}"
    is_accepted = any(t["accepted_as"] for t in tensors)
    row.verdict = "as reference" if is_accepted else "agrees"
    if checked["passed"]:
        return
    row.verdict = "differs"
    if "float16" not in (values["storage_dtype"], values["compute_dtype"]):
        return
    told = adrenoc(*words, "--rounding-floor", until=until, codes=codes)["rounding_floor"]
    floor = Floor(**{k: np.inf if v is None else v for k, v in told.items()})
    if floor.is_of_rounding:  # else float32 is off as much, or half cannot hold it
        row.cells["floor"] = f"{floor.error:.1e} ({floor.ratio:.2f} x)"
        row.verdict = "at its floor" if floor.ratio <= MOST_OVER_FLOOR else row.verdict


def open_shapes(model: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of the stored arrays for the inputs of an ONNX model that have open dimensions."""
    stored = stored_arrays(model)
    if model.suffix != ".onnx" or not stored:
        return {}
    import onnx

    graph = onnx.load(model, load_external_data=False).graph
    return {
        spec.name: stored[spec.name].shape
        for spec in graph.input
        if spec.name in stored
        and any(not d.HasField("dim_value") for d in spec.type.tensor_type.shape.dim)
    }


def stored_arrays(model: Path) -> dict[str, Any]:
    """The arrays of the .npz beside the model, none where there is no such file."""
    stored: dict[str, Any] = {}
    for path in (model.with_suffix(".npz"), model.with_name(model.name + ".npz")):
        if path.is_file():
            with np.load(path, allow_pickle=False) as arrays:
                stored.update({name: arrays[name] for name in arrays.files})
    return stored


def inputs_of(model: Path, specs: Any) -> dict[str, Any]:
    """Return the arrays of the .npz beside the model that fit its inputs, random ones for the
    rest."""
    from adrenoc.bundle.manifest import TensorSpec
    from adrenoc.check.inputs import random_input

    stored = stored_arrays(model)
    arrays = {}
    for spec in specs:
        found, shape = stored.get(spec["name"]), tuple(spec["shape"])
        is_fit = found is not None and (found.shape, str(found.dtype)) == (shape, spec["dtype"])
        wanted = TensorSpec(**{**spec, "shape": shape})
        arrays[spec["name"]] = found if is_fit else random_input(wanted)
    return arrays
