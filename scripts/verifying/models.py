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

from __future__ import annotations

import argparse
import itertools
import json
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from scripts.verifying.rows import Row, show

SCRIPT = Path(__file__).resolve().parents[1] / "verify"
SUFFIXES = (".onnx", ".tflite")
CRASH_LINES = 3
PASSED = ("agrees", "as reference", "at its floor", "compiles")
MOST_OVER_FLOOR = 1.2


def main() -> int:
    """Verify and show; the exit code is 1 if any row did not pass."""
    options = parse()
    if options.row is not None:
        print(json.dumps(asdict(make_row(options.paths[0], options.row, options))))
        return 0
    models = find_models(options.paths)
    presets = options.presets.split(",")
    rows = []
    for model, preset in itertools.product(models, presets):
        begun, cpu_s = time.perf_counter(), children_s()
        row = row_of_child(model, preset, options)
        rows.append(replace(row, cpu_s=children_s() - cpu_s))
        took = time.perf_counter() - begun
        print(
            f"{row.verdict:<12} {row.model} {preset}, {took:.0f} s  {row.error}",
            file=sys.stderr,
            flush=True,
        )
    show(rows)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    passed = sum(row.verdict in PASSED for row in rows)
    print(f"{passed} of {len(rows)} passed")
    return 0 if passed == len(rows) else 1


def children_s() -> float:
    """Seconds of CPU of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", type=Path, nargs="+", help="model files, or folders of them")
    parser.add_argument("--presets", default="fp32,mixed", help="comma-separated (fp32,mixed)")
    parser.add_argument("--target", default="adreno", help="the target of the figures (adreno)")
    parser.add_argument("--device", default="host", help="the target that runs (host)")
    parser.add_argument("--cl-device", default="", help="OpenCL device to run on")
    parser.add_argument("--compile-only", action="store_true", help="run nothing")
    parser.add_argument(
        "--numbers-only", action="store_true", help="compile for the device that runs alone"
    )
    parser.add_argument(
        "--no-winograd", action="store_true", help="every 3x3 convolution as one kernel"
    )
    parser.add_argument(
        "--shape", action="append", default=[], help="NAME:D,D,... as for adrenoc compile"
    )
    parser.add_argument("--seed", type=int, default=0, help="of random inputs (0)")
    parser.add_argument(
        "--tolerance",
        action="append",
        default=[],
        metavar="PRESET=X",
        help="largest error over the output's range, such as mixed=2e-2",
    )
    parser.add_argument("--timeout", type=float, default=3600.0, help="seconds for a row (3600)")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the rows there")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    return parser.parse_args()


def find_models(paths: Iterable[Path]) -> list[Path]:
    """The files named and the models in the folders named, the smallest first."""
    found: dict[Path, None] = {}
    for path in paths:
        inside = [p for p in path.iterdir() if p.suffix in SUFFIXES] if path.is_dir() else [path]
        found.update(dict.fromkeys(inside))
    return sorted(found, key=lambda p: (p.stat().st_size if p.exists() else 0, p.name))


def row_of_child(model: Path, preset: str, options: argparse.Namespace) -> Row:
    """Make one row in a process of its own, so that a crash costs no other row."""
    command = [sys.executable, str(SCRIPT), "models", str(model), "--row", preset]
    command += ["--target", options.target, "--device", options.device]
    command += ["--cl-device", options.cl_device, "--seed", str(options.seed)]
    command += [f"--shape={shape}" for shape in options.shape]
    command += [f"--tolerance={tolerance}" for tolerance in options.tolerance]
    for name in ("compile_only", "numbers_only", "no_winograd"):
        command += [f"--{name.replace('_', '-')}"] if getattr(options, name) else []
    try:
        child = subprocess.run(
            command, capture_output=True, text=True, timeout=options.timeout, check=False
        )
    except subprocess.TimeoutExpired:
        error = f"stopped after {options.timeout:.0f} s"
        return Row(model=model.name, preset=preset, error=error)
    if child.returncode == 0:
        return Row(**json.loads(child.stdout.splitlines()[-1]))
    lines = child.stderr.strip().splitlines()[-CRASH_LINES:]
    said = " / ".join(line.strip() for line in lines)
    return Row(model=model.name, preset=preset, error=f"{ending(child.returncode)}: {said}")


def ending(code: int) -> str:
    """How a process ended, in words."""
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"


def make_row(model: Path, preset: str, options: argparse.Namespace) -> Row:
    """Compile twice, run once, compare; a user's error ends the row and is told in it."""
    from adrenoc.base.errors import AdrenocError

    known: dict[str, Any] = {"model": model.name, "preset": preset}
    with tempfile.TemporaryDirectory(prefix="verify-models-") as folder:
        try:
            if not options.numbers_only:
                known |= figures(model, preset, options, Path(folder))
            known |= check(model, preset, options, Path(folder))
        except AdrenocError as error:
            known["error"] = one_line(error.message)
    return Row(**known)


def one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def make(model: Path, target: str, preset: str, options: argparse.Namespace, path: Path) -> Any:
    """Compile `model`, with all checks of the IR."""
    from adrenoc.base.reporter import SilentReporter
    from adrenoc.compile.make import make_bundle
    from adrenoc.ir.options import parse_shape, resolve_options
    from adrenoc.target.target import load_target

    loaded = load_target(target)
    shapes = open_shapes(model) | dict(parse_shape(text) for text in options.shape)
    said = {
        "check_ir": True,
        "shapes": tuple(shapes.items()) or None,
        "winograd": not options.no_winograd,
    }
    resolved = resolve_options(loaded, preset=preset, command_line=said)
    return make_bundle(
        model,
        target=loaded,
        options=resolved.options,
        output=path,
        reporter=SilentReporter(),
        use_cache=False,
    )


def figures(model: Path, preset: str, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Compile for the target of the figures and read them off the manifest."""
    import tvm  # noqa: F401  # its import is no part of the compile time

    made = make(model, options.target, preset, options, folder / "target.adrenoc")
    manifest, counts = made.manifest, made.manifest.statistics
    tensors = counts.tensors_texture + counts.tensors_buffer
    borders = len(manifest.inputs) + len(manifest.outputs)
    return {
        "operators_texture": counts.nodes_texture,
        "operators_buffer": counts.nodes_buffer,
        "operators_cpu": counts.nodes_cpu,
        "texture_share": counts.tensors_texture / max(1, tensors - borders),
        "launches": sum(kernel.calls for kernel in manifest.kernels),
        "kernels": len(manifest.kernels),
        "pad_kernels": counts.pad_kernels,
        "copy_kernels": counts.copy_kernels,
        "layout_kernels": counts.layout_kernels,
        "compile_s": made.time_ms / 1000,
        "memory_bytes": manifest.memory.peak_bytes,
        "verdict": "compiles" if options.compile_only else "failed",
    }


def check(model: Path, preset: str, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Compile for the device that runs, run there and compare."""
    if options.compile_only:
        return {}
    from adrenoc.bundle.bundle import open_bundle

    made = make(model, options.device, preset, options, folder / "device.adrenoc")
    bundle = open_bundle(made.path)
    specs = bundle.manifest.inputs
    chosen = dict(text.split("=", 1) for text in options.tolerance)
    tolerance = float(chosen[preset]) if preset in chosen else None
    return compared(model, bundle, inputs_of(model, specs, options.seed), tolerance, options)


def compared(
    model: Path, bundle: Any, inputs: Any, tolerance: float | None, options: argparse.Namespace
) -> dict[str, Any]:
    """Run on these inputs, compare with the reference, and where beyond, with what it may be."""
    from adrenoc.check.own_rounding import judge_outputs
    from adrenoc.check.reference import run_reference
    from adrenoc.device.compare import default_tolerance
    from adrenoc.device.run import run_bundle

    expected = run_reference(model, inputs)
    result = run_bundle(bundle, inputs=inputs, device=options.cl_device, repeat=1, warmup=0)
    values = bundle.manifest.options.values
    dtypes = (values["storage_dtype"], values["compute_dtype"])
    limit = default_tolerance(*dtypes) if tolerance is None else tolerance
    checked = judge_outputs(model, inputs, result.outputs, expected, tolerance=limit)
    floor: dict[str, Any] = {}
    reasons = [
        f"output {t.name}: {t.reason or t.accepted_as}"
        for t in checked.tensors
        if t.accepted_as or not t.passed
    ]
    if not checked.passed and "float16" in dtypes:
        floor = rounding(bundle, model, inputs, result.outputs, expected)
    verdict = "as reference" if checked.accepted else "agrees"
    if not checked.passed:
        at_floor = floor.get("floor_ratio", float("inf")) <= MOST_OVER_FLOOR
        verdict = "at its floor" if at_floor else "differs"
    return {
        "run_ms": result.times.p50_ms,
        "range_error": worst_of(checked),
        "verdict": verdict,
        "error": "; ".join(reasons),
        **floor,
    }


def rounding(
    bundle: Any, model: Path, inputs: Any, outputs: Any, expected: Any
) -> dict[str, float]:
    """What ideal rounding gives on these inputs, and how many times that we are."""
    from adrenoc.base.reporter import SilentReporter
    from adrenoc.check.accuracy.bundle_floor import floor_of_bundle

    floor = floor_of_bundle(
        bundle,
        model,
        inputs=inputs,
        outputs=outputs,
        expected=expected,
        reporter=SilentReporter(),
    )
    if not floor.is_of_rounding:
        return {}  # float32 is off as much, or half cannot hold it: nothing that excuses an error
    return {"floor_error": floor.error, "floor_ratio": floor.ratio}


def worst_of(checked: Any) -> float:
    """The largest error of all outputs; infinite where one holds NaN or infinity alone."""
    return max(
        (float("inf") if t.bad_values else t.range_error for t in checked.tensors), default=0.0
    )


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
    import numpy as np

    stored: dict[str, Any] = {}
    for path in (model.with_suffix(".npz"), model.with_name(model.name + ".npz")):
        if path.is_file():
            with np.load(path, allow_pickle=False) as arrays:
                stored.update({name: arrays[name] for name in arrays.files})
    return stored


def inputs_of(model: Path, specs: Any, seed: int) -> dict[str, Any]:
    """The arrays of the .npz beside the model that fit its inputs, random ones for the rest."""
    from adrenoc.check.inputs import random_input

    stored = stored_arrays(model)
    return {
        spec.name: stored[spec.name]
        if fits(stored.get(spec.name), spec)
        else random_input(spec, seed=seed)
        for spec in specs
    }


def fits(array: Any, spec: Any) -> bool:
    """Whether a stored array can be that input."""
    return array is not None and array.shape == spec.shape and str(array.dtype) == spec.dtype
