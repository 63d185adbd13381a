"""Run a bundle at a place, time it and measure its memory: the one order of events, the same on
this machine and on a server."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from adrenoc.base.reporter import ms_since
from adrenoc.bundle.bundle import Bundle
from adrenoc.device.fit import other_gpu_notes
from adrenoc.device.place import RunPlace, clml_ms, prepare_regions, start_build, textures_ms
from adrenoc.device.result import (
    GpuState,
    HintUse,
    LaunchReport,
    ProgramReport,
    Progress,
    RegionRun,
    RunOptions,
    RunResult,
    Sustained,
    TimedLaunch,
    Times,
    Tracer,
    clock_notes,
    kernel_times,
    node_times,
    read_gpu_state,
    tells_time,
)

if TYPE_CHECKING:
    import numpy as np

_DEVICE = "_kernel"
"""What TVM adds to the name of a function's part on the device."""
_NO_CLOCK = "the device's events tell of no time, so no kernel could be timed"


def execute(
    place: RunPlace,
    bundle: Bundle,
    inputs: Mapping[str, np.ndarray],
    options: RunOptions,
    progress: Progress,
    *,
    others: Mapping[str, np.ndarray] | None = None,
    steps: Sequence[Mapping[str, np.ndarray]] = (),
) -> RunResult:
    """Load, build, run and time; `progress` learns what is done, in case the rest fails.

    With `others`, inputs of the same form, runs among such of these come last (`among_others`).
    Each run begins with the states that `inputs` have; with `steps`, what runs take after that of
    `inputs`, outputs are those of all of them, along a first axis, each begun with the states that
    the one before has left. Raises RuntimeError, ValueError or MemoryError as TVM and the OpenCL
    runtime do.
    """
    # Before anything uses the device: its context is made by them.
    place.function("adrenoc.opencl.set_hints")(options.perf_hint, options.priority)
    memory = MemoryMeter(place, progress.tracer)
    loaded = _load(place, bundle, options, progress.tracer)
    runner = _Runner(place, bundle, loaded, inputs, options.recording, progress.tracer)
    progress.first_ms = runner.run_ms("first run")
    memory_bytes = memory.peak_bytes()
    progress.outputs = runner.take_outputs()
    states = [_time_warm_runs(runner, place, options, progress)]
    sustained = _sustain(runner, options)
    launching = runner.launching()
    outputs = runner.take_outputs()
    notes = _differences(progress.outputs, outputs)
    if steps:
        outputs = runner.walk([inputs, *steps])
    among = () if others is None else _run_among(runner, inputs, others)
    states.append(_read_state(place, progress.tracer))
    launches, of_clock = _profile(runner, place) if options.profile else ([], ())
    regions = loaded.regions
    if options.profile and regions:
        regions = _time_regions(runner, place, bundle, regions, launches)
    return RunResult(
        device=str(place.facts["name"]),
        driver=str(place.facts["driver"]),
        outputs=outputs,
        among_others=among,
        times=Times.from_runs(
            load_ms=loaded.load_ms,
            build_ms=loaded.build_ms,
            first_ms=progress.first_ms,
            warm_ms=progress.warm_ms,
        ),
        memory_bytes=memory_bytes,
        sustained=sustained,
        programs=loaded.programs,
        hints=tuple(
            HintUse(**use)
            for use in json.loads(place.function("adrenoc.opencl.hints")(place.number))
        ),
        launching=launching,
        regions=regions,
        kernels=kernel_times(launches),
        nodes=node_times(launches, bundle.launches()),
        gpu=tuple(state for state in states if state.is_known),
        warm_ms=tuple(progress.warm_ms),
        trace=progress.tracer.finish(),
        notes=(
            *other_gpu_notes(bundle, place.facts),
            *loaded.programs.notes(),
            *clock_notes(states, place.facts),
            *notes,
            *of_clock,
        ),
    )


@dataclass(frozen=True, kw_only=True)
class _Loaded:
    """A bundle at a place, with its kernels built: what was loaded, and how long both took."""

    machine: Any
    constants: list[Any]
    programs: ProgramReport
    regions: tuple[RegionRun, ...]
    load_ms: float
    build_ms: float


def _load(place: RunPlace, bundle: Bundle, options: RunOptions, tracer: Tracer) -> _Loaded:
    """Load a bundle and build its kernels, the one beside the other."""
    from tvm import relax

    device = place.device()
    started = time.perf_counter()
    with bundle.read_as_one(), ExitStack() as stack:
        with tracer.span("open the library"):
            module = place.load(bundle)
        wait_for_kernels = stack.enter_context(start_build(place, bundle, module, options.programs))
        # Bundles count on these two: 0 is the OpenCL device, 1 the CPU.
        machine = relax.VirtualMachine(module, [device, place.cpu()])
        with tracer.span("upload constants"):
            constants = place.constants(bundle)
            device.sync()
        load_ms = ms_since(started)
        started = time.perf_counter()
        with tracer.span("wait for kernels that are built"):
            programs = wait_for_kernels()
    regions = prepare_regions(place, module)
    return _Loaded(
        machine=machine,
        constants=constants,
        programs=programs,
        regions=regions,
        load_ms=load_ms,
        build_ms=ms_since(started),
    )


def _time_warm_runs(
    runner: _Runner, place: RunPlace, options: RunOptions, progress: Progress
) -> GpuState:
    """Time the warm runs; the state of the GPU as they begin."""
    for _ in range(options.warmup):
        runner.run_ms("warm-up")
    # Not earlier: a GPU that idles has another clock.
    state = _read_state(place, progress.tracer)
    for _ in range(max(1, options.repeat)):
        progress.warm_ms.append(runner.run_ms())
    return state


def _read_state(place: RunPlace, tracer: Tracer) -> GpuState:
    """Clock and heat at this moment."""
    state = read_gpu_state(place.function("adrenoc.runtime.gpu_state"))
    tracer.read_gpu(state)
    return state


class _Runner:
    """A loaded bundle with its inputs on the device."""

    def __init__(
        self,
        place: RunPlace,
        bundle: Bundle,
        loaded: _Loaded,
        inputs: Mapping[str, np.ndarray],
        recording: str,
        tracer: Tracer,
    ) -> None:
        import tvm

        self.tracer = tracer
        self._place = place
        self._specs = bundle.manifest.outputs
        self._first = {name: inputs[name] for name in bundle.manifest.states}
        self._presents = bundle.kept_states
        self._device = place.device()
        self._names = [spec.name for spec in bundle.manifest.inputs]
        with tracer.span("upload inputs"):
            given = [tvm.runtime.tensor(inputs[name], self._device) for name in self._names]
        # Held here: over RPC the other side knows their addresses alone.
        self._arguments = [*given, *loaded.constants]
        # Not `set_input`: over RPC it copies textures to buffers.
        self._bound = place.function("adrenoc.opencl.bind_run")(
            loaded.machine.module, "main", place.number, recording, *self._arguments
        )
        self._run = place.look_up(self._bound, "run")
        self._result: Any = None

    def give(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Have other numbers in the same tensors, of those inputs that are given."""
        for name, tensor in zip(self._names, self._arguments, strict=False):
            if name in inputs:
                tensor.copyfrom(inputs[name])

    def run_ms(self, name: str = "run") -> float:
        """Run once, from the states that were given; returns how long it took."""
        self.give(self._first)
        return self._run_on_ms(name)

    def walk(self, steps: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """Run once for each of `steps`, from the states that were given on; all outputs."""
        import numpy as np

        self.give(self._first)
        found = []
        for inputs in steps:
            self.give({n: array for n, array in inputs.items() if n not in self._first})
            self._run_on_ms()
            found.append(self.take_outputs())
        self.give(steps[0])
        return {name: np.stack([one[name] for one in found]) for name in found[0]}

    def _run_on_ms(self, name: str = "run") -> float:
        """Run once, from the states that the last run left; returns how long it took."""
        # Gone before the next run, which else would need memory for its outputs beside these.
        self._result = None
        begun = time.perf_counter()
        with self.tracer.span(name):
            with self.tracer.span("launch"):
                self._result = self._run()
            with self.tracer.span("wait"):
                self._device.sync()
        return ms_since(begun)

    def launching(self) -> LaunchReport:
        """Return how the last run was launched."""
        return LaunchReport(**json.loads(self._place.look_up(self._bound, "report")()))

    def take_outputs(self) -> dict[str, np.ndarray]:
        """Return the outputs of the last run, by name, with the states that it left."""
        tensors = self._place.fields(self._result, self._specs)
        found = {
            spec.name: tensor.numpy() for spec, tensor in zip(self._specs, tensors, strict=True)
        }
        held = dict(zip(self._names, self._arguments, strict=False))
        return found | {present: held[past].numpy() for past, present in self._presents}


def _run_among(
    runner: _Runner, inputs: Mapping[str, np.ndarray], others: Mapping[str, np.ndarray]
) -> tuple[tuple[dict[str, np.ndarray], dict[str, np.ndarray]], ...]:
    """Return the outputs for `inputs` of runs that each follow some of `others`, behind those of
    the last.

    A kernel that such a run loses leaves what the run before it wrote.  The numbers of runs between
    are uneven, so that what is lost every second to fifth time is lost by one of these.
    """
    found = []
    for between in (1, 2, 1, 3, 2, 1):
        runner.give(others)
        for _ in range(between):
            runner.run_ms()
        before = runner.take_outputs()
        runner.give(inputs)
        runner.run_ms()
        found.append((before, runner.take_outputs()))
    return tuple(found)


def _sustain(runner: _Runner, options: RunOptions) -> Sustained | None:
    if options.sustain_s <= 0:
        return None
    run_ms = []
    end = time.perf_counter() + options.sustain_s
    while time.perf_counter() < end:
        run_ms.append(runner.run_ms())
        time.sleep(options.pause_ms / 1000)
    return Sustained.from_runs(run_ms, seconds=options.sustain_s, pause_ms=options.pause_ms)


def _profile(runner: _Runner, place: RunPlace) -> tuple[list[TimedLaunch], tuple[str, ...]]:
    """Return the launches of one more run, or why there are none: the clock stands."""
    start = place.function("adrenoc.opencl.profile_start")
    stop = place.function("adrenoc.opencl.profile_stop")
    start(place.number)
    try:
        runner.run_ms("profiled run")
    finally:
        told = json.loads(stop(place.number))
    launches = [
        TimedLaunch(kernel=name.removesuffix(_DEVICE), start_ns=start, end_ns=end)
        for name, start, end in told
    ]
    why = (_NO_CLOCK,) if launches and not tells_time(launches) else ()
    if why:
        launches = []
    runner.tracer.note_launches(launches)
    return launches, why


def _time_regions(
    runner: _Runner,
    place: RunPlace,
    bundle: Bundle,
    regions: tuple[RegionRun, ...],
    launches: list[TimedLaunch],
) -> tuple[RegionRun, ...]:
    """Return the regions with their times, and those of their texture kernels."""
    switch_off = place.function("adrenoc.clml.switch_off")
    switch_off(True)
    try:
        runner.run_ms()  # what is built at its first use is built here
        beside, _ = _profile(runner, place)
    finally:
        switch_off(False)
    infos = {info.symbol: info for info in bundle.manifest.regions}
    return tuple(
        replace(
            region,
            clml_ms=clml_ms(launches, region.symbol) if region.used else None,
            textures_ms=textures_ms(beside, infos[region.symbol]),
        )
        for region in regions
        if region.symbol in infos
    )


def _differences(first: Mapping[str, np.ndarray], last: Mapping[str, np.ndarray]) -> list[str]:
    """Return whether the runs gave the same, bit by bit."""
    return [
        f"the first and the last run gave different values of `{name}`"
        for name, array in last.items()
        if first[name].tobytes() != array.tobytes()
    ]


class MemoryMeter:
    """Measures what the runtime holds on a device, from now on."""

    def __init__(self, place: RunPlace, tracer: Tracer) -> None:
        self._tracer = tracer
        self._number = place.number
        self._stats = place.function("adrenoc.opencl.memory_stats")
        place.function("adrenoc.opencl.release_pool")(place.number)
        self._before = self._read("allocated_bytes")

    def peak_bytes(self) -> int:
        """Return the most that was held since then, beyond what was held before."""
        peak, held = (self._read(key) - self._before for key in ("peak_bytes", "allocated_bytes"))
        self._tracer.read("memory held, bytes", held)
        self._tracer.read("most memory held, bytes", peak)
        return peak

    def _read(self, key: str) -> int:
        return int(json.loads(self._stats(self._number))[key])
