"""Run the stages, one after the other."""

from __future__ import annotations

import time
from pathlib import Path

from adrenoc.base.errors import OptionError
from adrenoc.base.files.outputs import output_error, write_atomically
from adrenoc.base.host.out_of_memory import memory_errors
from adrenoc.base.host.time_trace import section
from adrenoc.base.reporter import Reporter
from adrenoc.base.text.spelling import did_you_mean
from adrenoc.bundle.manifest import StageTime
from adrenoc.compile.pipeline.phases import check_phase
from adrenoc.compile.pipeline.stage import check_order
from adrenoc.compile.pipeline.stages import STAGES, stage_names
from adrenoc.compile.pipeline.state import State


def run_stages(
    state: State,
    *,
    reporter: Reporter,
    dump_dir: Path | None = None,
    stop_after: str | None = None,
) -> tuple[State, tuple[StageTime, ...]]:
    """Run the pipeline, up to and with `stop_after`.

    Raises:
        OptionError: no stage has that name.
        HostMemoryError: there is no memory left for one.
        AdrenocError: what a stage says of the model.
    """
    if stop_after is not None and stop_after not in stage_names():
        raise OptionError(
            f"no stage is called {stop_after!r}{did_you_mean(stop_after, stage_names())}",
            hint=f"the stages are: {', '.join(stage_names())}",
        )
    check_order(STAGES)
    if dump_dir is not None:
        try:
            dump_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise output_error(dump_dir, error) from error
    wanted = [stage for stage in STAGES if stage.when(state.options)]
    last_of = {stage.phase: stage for stage in wanted}
    times: list[StageTime] = []
    ended: list[StageTime] = []
    for stage in wanted:
        state.log.stage = stage.name
        reporter.working(stage.name, len(times), len(wanted))
        started = time.perf_counter()
        with (
            memory_errors(f"the stage {stage.name} of {state.model}"),
            section(stage.name, "stage"),
        ):
            state = stage.run(state)
        if state.options.check_ir:
            with section(f"check {stage.name}", "check"):
                stage.check(state)
                if stage is last_of[stage.phase]:
                    check_phase(stage.phase, state)
        took = StageTime(
            name=stage.name,
            time_ms=(time.perf_counter() - started) * 1000,
            note=stage.note(state),
        )
        times.append(took)
        ended.append(took)
        reporter.part(took.name, took.time_ms, took.note)
        if dump_dir is not None:
            text = stage.dump(state).encode(errors="backslashreplace")
            write_atomically(dump_dir / f"{STAGES.index(stage):02d}_{stage.name}.txt", text)
        is_end = stage.name == stop_after
        if is_end or stage is last_of[stage.phase]:
            note = next((one.note for one in reversed(ended) if one.note), "")
            reporter.stage(stage.phase.value, sum(one.time_ms for one in ended), note)
            ended = []
        if is_end:
            break
    return state, tuple(times)
