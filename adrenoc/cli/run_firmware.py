"""`adrenoc firmware run`: a folder of C computes beside the model's own runtime.

`adrenoc firmware tune`: schedules are measured under QEMU, or on a board behind a command.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from adrenoc.base.errors import CheckFailedError, InputError, OptionError
from adrenoc.base.host.variables import read_number, read_variable
from adrenoc.base.text.report import Fields, Part, Share, Title, Verdict, tabulate
from adrenoc.base.text.spelling import figure, quote_word, show_bytes
from adrenoc.cli import console
from adrenoc.cli.firmware import CoreModel, ram_text
from adrenoc.cli.guarded import HeavyCommand, InputPath, OutputPath, wants_json
from adrenoc.cli.model_params import Parsed, read_duration
from adrenoc.cli.options import input_option, output_option, seed_option
from adrenoc.cli.place_options import timeout_s
from adrenoc.cli.records import argument, give_options, group_of, option

if TYPE_CHECKING:
    from adrenoc.check.inputs import InputFile
    from adrenoc.firmware.mcu.boards import TrialBoard
    from adrenoc.firmware.mcu.core import Core
    from adrenoc.firmware.mcu.emulator import Emulated
    from adrenoc.firmware.mcu.folder import Firmware


@dataclass(frozen=True, kw_only=True)
class _Run:
    path: Path = argument(metavar="FOLDER")
    files: tuple[InputFile, ...] = input_option(
        "An input: .npy, .npz, an image or raw bytes.  [default: seeded random numbers]"
    )
    seed: int = seed_option("Seed of random inputs.")
    reference: Path | None = option(
        "--check MODEL",
        help="Compare every byte with what LiteRT or onnxruntime computes from MODEL.",
    )
    save: Path | None = option(
        "--save FILE.npz", type=OutputPath(is_file=True), help="Write the outputs there."
    )


@click.command("run", cls=HeavyCommand)
@give_options(_Run)
def run_firmware_command(given: _Run) -> int:
    """Run a FOLDER of C under QEMU, or here, and count its instructions.

    They are no cycles, and not of a board or a phone.
    """
    from adrenoc.check.inputs import make_inputs
    from adrenoc.firmware.mcu.core import load_core
    from adrenoc.firmware.mcu.emulator import run_firmware
    from adrenoc.firmware.mcu.folder import open_firmware

    firmware = open_firmware(given.path)
    on_processor = load_core(firmware.device).is_processor
    inputs = make_inputs(firmware.inputs, given.files, seed=given.seed)
    expected, judge = None, ""
    if given.reference is not None:
        from adrenoc.check.reference import expected_outputs, judge_of

        expected = expected_outputs(firmware, given.reference, inputs)
        judge = judge_of(given.reference)
    if on_processor:
        from adrenoc.firmware.cpu.make_cpu import run_cpu_folder

        threads = int(read_number("ADRENOC_THREADS", 1.0, least=1.0, most=8.0))
        result = run_cpu_folder(given.path, firmware, inputs, threads=threads)
    else:
        result = run_firmware(given.path, firmware, inputs)
    if given.save is not None:
        from adrenoc.check.inputs import save_arrays

        save_arrays(given.save, result.outputs)
    wrong = None if expected is None else _differences(result, expected, firmware)
    error = None
    if wrong:
        error = CheckFailedError(
            f"{sum(wrong.values())} numbers differ from what {judge}",
            hint=f"adrenoc firmware run {quote_word(given.path)} --check "
            f"{quote_word(given.reference or '')} --seed N for other inputs",
        )
    return console.tell(
        _plain(firmware, result, wrong),
        *_list_parts(firmware, result, judge if wrong == {} else ""),
        error=error,
    )


def _differences(result: Emulated, expected: Any, firmware: Firmware) -> dict[str, int]:
    """Count how many numbers of each output differ."""
    found = {}
    for spec in firmware.outputs:
        if spec.name not in expected or expected[spec.name].shape != spec.shape:
            raise InputError(
                f"the model computes no output '{spec.name}' of {list(spec.shape)}; the folder "
                "was made of another one",
                hint="name the model that the folder was compiled from",
            )
        count = int((expected[spec.name] != result.outputs[spec.name]).sum())
        if count:
            found[spec.name] = count
    return found


def _plain(firmware: Firmware, result: Emulated, wrong: dict[str, int] | None) -> dict[str, Any]:
    counted = result.layer_instructions or [None] * len(firmware.layers)
    counts = zip(firmware.layers, counted, strict=True)
    return {
        "device": firmware.device,
        "instructions": result.instructions,
        "arena_bytes": firmware.arena_bytes,
        "code_and_constant_bytes": result.code_bytes,
        "layers": [{**asdict(layer), "instructions": count} for layer, count in counts],
        "differences": wrong,
        "passed": None if wrong is None else not wrong,
    }


def _list_parts(firmware: Firmware, result: Emulated, judge: str) -> Iterator[Part]:
    """Tell the counts, and where all was right, whose numbers it was held against."""
    from adrenoc.firmware.mcu.emulator import OPTIMISATION

    where = "" if firmware.device == "cpu:host" else "QEMU's "
    yield Title(text=firmware.name, detail=f"on {where}{firmware.device}, gcc {OPTIMISATION}")
    counts = result.layer_instructions
    yield tabulate(
        zip(firmware.layers, counts, strict=True) if counts else (),
        {
            "layer": lambda one: one[0].name,
            "operator": lambda one: one[0].operator,
            "how": lambda one: one[0].how,
            "instructions": lambda one: figure(one[1], ","),
            "share": lambda one: Share.of(one[1], result.instructions),
        },
    )
    told = f"{result.instructions:,} instructions: not cycles, and not of a board or a phone"
    yield Fields(
        pairs=[
            *([("in all", told)] if counts else []),
            ("constants", f"{show_bytes(result.code_bytes)}, with code on microcontrollers"),
            ("RAM", ram_text(firmware)),
        ]
    )
    if judge:
        yield Verdict(passed=True, text=f"every byte is what {judge}")


@dataclass(frozen=True, kw_only=True)
class TuningBudget:
    """How much is tried, and which logs it begins from and ends in."""

    trials: int = option(
        "--trials",
        type=click.IntRange(min=0),
        default=200,
        help="Schedules to measure in all, those in the log included.",
    )
    budget_s: float = option(
        "--budget TIME",
        type=Parsed(read_duration),
        default=0.0,
        help="Stop after so long, and what is in flight then: 30m.",
    )
    output: Path | None = output_option(
        "The log; one that exists is continued.  [default: MODEL's name with .tune.json]"
    )
    more_logs: tuple[Path, ...] = option(
        "--from FILE",
        type=InputPath(replaced=True),
        help="A log of other models or devices to begin from; may be repeated.",
    )

    def log_of(self, model: Path) -> Path:
        """Return the log to write, or to go on with."""
        return self.output or Path(f"{model.stem}.tune.json")


@dataclass(frozen=True, kw_only=True)
class _Tuned(CoreModel):
    budget: TuningBudget = group_of(TuningBudget)


@click.command("tune", cls=HeavyCommand)
@give_options(_Tuned)
def tune_firmware_command(given: _Tuned) -> None:
    """Measure schedules of the layers of an int8 MODEL and keep them in a log.

    `adrenoc firmware compile MODEL --tuning-log FILE` takes the best.  Without ADRENOC_EXECUTOR
    instructions are counted under QEMU.  With --json one object a line, the last the result.
    """
    from adrenoc.cli.show_tune import JsonObserver, LiveObserver, list_result
    from adrenoc.firmware.mcu.boards import EmulatedBoard, ExecutorBoard
    from adrenoc.lab.tune.firmware import FirmwareTuneRequest, tune_firmware

    model, core, wanted = given.model, given.core, given.budget
    executor = read_variable("ADRENOC_EXECUTOR")
    _check_choices(core)
    log = wanted.log_of(model)
    request = FirmwareTuneRequest(
        model=model,
        core=core,
        log=log,
        trials=wanted.trials,
        budget_s=wanted.budget_s,
        more_logs=wanted.more_logs,
    )

    def board() -> TrialBoard:
        if executor:
            return ExecutorBoard(executor, limit_s=timeout_s(20.0))
        return EmulatedBoard(core, limit_s=timeout_s(20.0))

    if wants_json():
        observer = JsonObserver()
        observer.result(tune_firmware(request, board, observer), log)
        return
    with LiveObserver(model.name, core.name) as live:
        result = tune_firmware(request, board, live)
    command = f"adrenoc firmware compile {quote_word(model)} --device {core.name}"
    console.draw(list_result(result, command, log))
    if not executor:
        told = "an instruction under QEMU is a nanosecond here: not cycles, and not of a board"
        console.draw(Fields(pairs=[("times", told)]))


def _check_choices(core: Core) -> None:
    """Refuse a core whose kernels have one schedule each."""
    if core.is_processor or not core.has_dsp:
        raise OptionError(
            f"kernels for {core.name} have one schedule each: there is nothing to tune",
            hint=f"adrenoc firmware compile MODEL --device {core.name}",
        )
