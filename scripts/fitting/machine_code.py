"""Kernels as an outside analyser's machine code for an Adreno, and the time estimated from that.

What `scripts/estimate_networks` says of models is made of.
"""

import argparse
import importlib.util
import math
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fitting.known_extents import KnownExtents
from fitting.loop_trips import find_trips, loop_extents, machine_work, work_of

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

WAVE = 128
HALF_TEXEL_BYTES, FLOAT_TEXEL_BYTES = 8, 16
DOT_IN_SPIRV = """\
int __attribute__((overloadable)) __spirv_SUDotKHR(uint weights, uint word, int packed);
#define DOT_PRODUCT(weights, word, total) ((total) + __spirv_SUDotKHR(weights, word, 0))
"""
"""The analyser's front end lacks OpenCL's name of the dot product, but not SPIR-V's."""
CONSTANTS_OF_PROGRAM = """\
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
__constant half constants[] = {NUMBERS};
#define COPIED_WEIGHTS __global const uint* restrict
#define ALIKE_IN_A_WAVE
#define CONSTANT_PLACE __global const uint* restrict
#define IN_THE_FILE
#define MOST_WAVES(waves)
#define START_CONSTANTS(place, weights, vectors, slots, waves)
#define SHARE_CONSTANT(place, weights, first, vectors, shared, at)
#define AWAIT_CONSTANTS(place, weights)
#define COPY_CONSTANTS(place, weights, first, vectors) \\
  acc0_ptr[0].s0 += as_half2(weights[4 * (first)]).s0
#define CONSTANT(shared, at) ((half4)(constants[4 * (at)], constants[4 * (at) + 1], \\
  constants[4 * (at) + 2], constants[4 * (at) + 3]))
"""
"""The open compiler has no word for the copy of a wave: one load in its place, which the products
wait for. What it puts to registers of the program's own constants costs nothing there."""
_MOVED = re.compile(r"\s*(?:\([a-z]+\d*\))*mov\.u16u16 h?r[\w.]+, \d+$")
CACHE_AXES = 4
MHZ_A_GHZ = 1e3
REACHED = 0.7
"""The share of memory's nominal rate that the tools assume."""
RELATIVES = {"a830": "a750", "a840": "a750"}
"""GPUs that the tools do not know: one whose machine code stands for theirs."""


TAKES_CONSTANTS = {"a750": "a730"}
"""GPUs whose constants the open compiler moves to registers: a like one of the same registers,
whose instructions take them as they are."""


class AnalyserError(SystemExit):
    """The outside compiler refused a kernel."""


@dataclass(frozen=True, kw_only=True)
class KernelRow:
    """One kernel's figures; `trips` are those of the machine code's loops."""

    kernel: str
    family: str
    registers: int
    threads_in_flight: int
    scratch_bytes: int
    trips: tuple[int, ...]
    off: float
    waits: str
    est_ms: float
    narrow_ms: float
    """The estimate where local memory gives a vector a thread in the same time whatever its width;
    that of an estimator which does not tell them apart is `est_ms`."""
    dram_ms: float


def add_tools(parser: argparse.ArgumentParser) -> None:
    """The two outside tools, as options of a script."""
    parser.add_argument("--analyser", type=Path, help="the ir3stats command")
    parser.add_argument("--estimator", type=Path, help="isaest.py, which asks the analyser")


def load_estimator(options: argparse.Namespace) -> Any:
    """The estimator as a module; it finds the analyser through the environment."""
    for name in ("analyser", "estimator"):
        path = getattr(options, name)
        if path is None or not path.exists():
            sys.exit(f"no {name}: give --{name} PATH (nothing can be estimated without it)")
    os.environ["IR3STATS"] = str(options.analyser)
    spec = importlib.util.spec_from_file_location("estimator", options.estimator)
    if spec is None or spec.loader is None:
        sys.exit(f"--estimator {options.estimator} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for gpu in [*module.GPUS, *RELATIVES]:
        like = module.GPUS[RELATIVES.get(gpu, gpu)]
        module.GPUS[gpu] = {**like, **rates_of(f"adreno:{gpu}")}
    return module


def rates_of(device: str) -> dict[str, float]:
    """What the estimator needs of a GPU, by its target file: one source for it and for choices."""
    from adrenoc.kernels.families.shared.machine import Machine
    from adrenoc.target.target import load_target

    target = load_target(device)
    machine = Machine.from_performance(target.performance, target.cost)
    unstated = target.cost.unstated
    return {
        "clk": (target.performance.clock_mhz or unstated.clock_mhz) / MHZ_A_GHZ,
        "dram": target.performance.dram_gb_per_s or unstated.dram_gb_per_s,
        "tex": machine.texels,
        "fp32": machine.lanes,
        "fp16": machine.lanes * machine.half_rate,
        "waves": machine.most_waves,
    }


def compile_for(
    model: Path, gpu: str, preset: str, *, stop_after: str | None = None, **asked: Any
) -> Any:
    """All stages for a model file, or those up to one; the last state.

    `asked` are fields of the options.
    """
    from adrenoc.base.reporter import SilentReporter
    from adrenoc.compile.pipeline import State, run_stages
    from adrenoc.ir.options import resolve_options
    from adrenoc.target.target import load_target

    target = load_target(f"adreno:{gpu}")
    options = replace(resolve_options(target, preset=preset).options, **asked)
    start = State(model=model, target=target, options=options)
    state, _ = run_stages(start, reporter=SilentReporter(), stop_after=stop_after)
    return state


def kernel_rows(
    state: Any, gpu: str, estimator: Any, folder: Path, *, stored: int = 0
) -> Iterator[KernelRow]:
    """The figures of each kernel of a compiled model; `folder` is scratch.

    What kernels read from memory as an integer is `stored`: how many rows of a cache are there.
    """
    from adrenoc.kernels.codegen.build import kernel_sources

    sources = kernel_sources(state.executable)
    half = state.options.storage_dtype == "float16"
    for number, kernel in enumerate(state.program.kernels.values()):
        path = folder / f"{number}.cl"
        path.write_text(with_known_words(sources[kernel.name]))
        spec = {
            "mac": 64,
            "texel_bytes": HALF_TEXEL_BYTES if half else FLOAT_TEXEL_BYTES,
            "dram_bytes": bytes_of_kernel(state, kernel, stored),
            "cl": str(path),
            "kernel": f"{kernel.name}_kernel",
            "slots": slots_of(sources[kernel.name], estimator, gpu),
            **started(kernel.launch),
        }
        yield estimate(kernel.name, kernel.family, kernel.func, spec, gpu, estimator, stored)


def with_known_words(text: str) -> str:
    """A kernel's source with dot products that the analyser has, and with constants of the program
    in place of those that waves copy to the constant file."""
    from adrenoc.kernels.codegen.opencl_source import CONSTANTS_STARTED

    text = re.sub(r"#if defined\(__opencl_c_integer_dot.*?#endif\n", DOT_IN_SPIRV, text, flags=re.S)
    copied = CONSTANTS_STARTED.search(text)
    if copied is None:
        return text
    numbers = (f"{number * 37 % 251 / 97 + 0.01:.4f}h" for number in range(8 * int(copied[3])))
    known = CONSTANTS_OF_PROGRAM.replace("NUMBERS", ",".join(numbers))
    return re.sub(r"#ifdef CONSTANT_FILE\n.*?#endif\n", lambda _: known, text, flags=re.S)


def slots_of(text: str, estimator: Any, gpu: str) -> int | None:
    """How many waves of a micro shader processor find a slot of the constant file; None where the
    kernel needs none."""
    from adrenoc.kernels.codegen.opencl_source import CONSTANTS_STARTED

    copied = CONSTANTS_STARTED.search(text)
    if copied is None:
        return None
    waves = estimator.GPUS[gpu]["waves"]
    return max(1, int(copied[4]) // max(1, int(copied[5]) // waves))


def bytes_of_kernel(state: Any, kernel: Any, stored: int = 0) -> int:
    """Bytes that memory has to move at least: all arguments, of each no more than threads do."""
    program = state.program
    step = next(step for step in program.steps if step.kernel == kernel.name)
    threads = math.prod(kernel.launch.grid) * math.prod(kernel.launch.work_group)
    moved = KnownExtents(kernel.func, stored).bytes_moved(threads)
    total = 0
    for name, buffer in zip(step.arguments, kernel.func.params, strict=True):
        if name in program.params:
            size = program.params[name].value.nbytes
        else:
            spec = program.graph.operand(name)
            size = math.prod(spec.physical) * np.dtype(spec.dtype).itemsize
            if name in program.graph.state_names and len(spec.shape) == CACHE_AXES:
                rows = spec.shape[-2]  # which a thread may read once more, where others have more
                size = size * min(stored + tokens_of(state), rows) // rows
        total += min(size, moved.get(buffer.name, size))
    return total


def tokens_of(state: Any) -> int:
    """How many tokens a run of a decoder takes; of another model no more than one."""
    return int(dict(state.options.shapes or ()).get("input_ids", (1, 1))[-1])


def started(launch: Any) -> dict[str, Any]:
    """Threads, in whole waves a work-group, and the work-group."""
    group = math.prod(launch.work_group)
    waves = -(-group // WAVE) if group > WAVE // 2 else 0.5
    return {
        "threads": math.prod(launch.grid) * waves * WAVE,
        "local": ",".join(map(str, launch.work_group)),
    }


def estimate(
    name: str,
    family: str,
    func: Any,
    spec: dict[str, Any],
    gpu: str,
    estimator: Any,
    stored: int = 0,
) -> KernelRow:
    """Have one kernel analysed, and estimated with the trip counts that fit."""
    slots, chip = spec["slots"], RELATIVES.get(gpu, gpu)
    if slots is not None:
        chip = TAKES_CONSTANTS.get(chip, chip)
    facts, wrong = estimator.stats(spec["cl"], spec["kernel"], "", chip, spec["local"])
    if facts is None:
        raise AnalyserError(f"the analyser failed on {name} for {gpu}:\n{wrong}")
    if slots is not None:
        listing = [line for line in facts["disasm"] if not _MOVED.match(line.rstrip())]
        facts = {**facts, "disasm": listing, "max_waves": min(facts["max_waves"], slots)}
    body, start, end, loops = estimator.parse(facts["disasm"])
    shifted = [{"a": loop["a"] - start, "b": loop["b"] - start} for loop in loops]
    known = KnownExtents(func, stored)
    wanted, extents = work_of(func.body, known.extent), loop_extents(func.body, known.extent)
    found_trips = [
        find_trips(wanted, extents, machine_work(body[start : end + 1], shifted, products=products))
        for products in (False, True)
    ]
    trips = min(found_trips, key=lambda trips: trips.off)
    said = "=" + ",".join(map(str, trips.counts))
    found = estimator.estimate(
        facts, facts["disasm"], estimator.GPUS[gpu], {**spec, "_gpu": gpu, "trips": said}
    )
    waits = found["bound_layer"]
    if found["est_ms"] > found["tput_ms"]:
        waits = "dram" if found["dram_ms"] >= found["lat_ms"] else "latency"
    return KernelRow(
        kernel=name,
        family=family,
        registers=found["full_regs"],
        threads_in_flight=found["threads_in_flight"],
        scratch_bytes=facts["pvtmem_size"],
        trips=trips.counts,
        off=trips.off,
        waits=waits,
        est_ms=found["est_ms"],
        narrow_ms=found.get("est_narrow_ms", found["est_ms"]),
        dram_ms=found["dram_ms"],
    )
