"""`adrenoc firmware`: int8 networks as folders of C, for microcontrollers and CPUs; run beside the
model's own runtime, and tuned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from adrenoc.base.errors import CheckFailedError, InputError, OptionError, PolicyError
from adrenoc.base.host.variables import read_number, read_variable
from adrenoc.base.text.report import (
    Cell,
    Fields,
    Name,
    Part,
    Share,
    Table,
    Title,
    Verdict,
    shorten,
    tabulate,
)
from adrenoc.base.text.spelling import figure, quote_word, show_bytes, show_ms
from adrenoc.cli import console
from adrenoc.cli.guarded import (
    HeavyCommand,
    InputPath,
    OutputPath,
    argument,
    give_options,
    group_of,
    option,
    wants_json,
)
from adrenoc.cli.model_params import CORE, Parsed, limit_option, read_duration
from adrenoc.cli.options import input_option, output_option, seed_option, timeout_s

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adrenoc.base.errors import AdrenocError
    from adrenoc.check.inputs import InputFile
    from adrenoc.firmware.mcu.boards import TrialBoard
    from adrenoc.firmware.mcu.core import Core
    from adrenoc.firmware.mcu.emulator import Emulated
    from adrenoc.firmware.mcu.folder import Firmware, Layer
    from adrenoc.firmware.mcu.make import Budget, Counts, MadeFirmware, Wishes
    from adrenoc.firmware.mcu.program import FirmwareProgram


@dataclass(frozen=True, kw_only=True)
class CoreModel:
    """A model, and the core to compile it for."""

    model: Path = argument()
    core: Core = option(
        "--device CORE",
        type=CORE,
        default="cortex-m4",
        help="A microcontroller, cpu:arm64 or cpu:host (adrenoc targets).",
    )


@dataclass(frozen=True, kw_only=True)
class _Planned(CoreModel):
    """What `compile` and `check` are told of the plan."""

    limit: dict[str, int] = limit_option(
        {"flash-kib": True, "ram-kib": True, "spare-flash-kib": True},
        "Fail beyond so much code and weights, or RAM with inputs and outputs; of microcontrollers "
        "also so much more flash that weights may take, where that saves instructions",
    )
    tuning_log: str | None = option(
        "--tuning-log FILE",
        type=InputPath(as_text=True),
        help="For microcontrollers: take the schedules that `adrenoc firmware tune` measured.",
    )

    def __post_init__(self) -> None:
        if self.core.is_processor and (self.spare_flash_kib or self.tuning_log):
            raise click.UsageError(
                "--limit spare-flash-kib and --tuning-log are for microcontrollers"
            )

    @property
    def spare_flash_kib(self) -> int:
        return self.limit.get("spare_flash_kib", 0)

    @property
    def budget(self) -> dict[str, int]:
        return {name: kib for name, kib in self.limit.items() if name != "spare_flash_kib"}

    @property
    def wishes(self) -> Wishes:
        from adrenoc.firmware.mcu.make import Wishes

        return Wishes(tuning_log=self.tuning_log, spare_flash_kib=self.spare_flash_kib)


@dataclass(frozen=True, kw_only=True)
class _Compiled(_Planned):
    output: Path | None = output_option(
        "Where the folder goes.  [default: MODEL's name with the core's, here]",
        type=OutputPath(),
        metavar="DIR",
    )
    with_object: bool = option("--object", help="For microcontrollers: a compiled model.o too.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.core.is_processor and self.with_object:
            raise click.UsageError("--object is for microcontrollers")


@click.command("compile", cls=HeavyCommand)
@give_options(_Compiled)
def compile_firmware_command(given: _Compiled) -> int:
    """Compile an int8 MODEL (.tflite or .onnx) into a folder of C for a core."""
    from adrenoc.firmware.mcu.folder import firmware_to_json, write_firmware
    from adrenoc.firmware.mcu.make import make_firmware, plan_firmware

    model, core = given.model, given.core
    if given.budget:
        program, _ = plan_firmware(model, core, given.wishes)
        error = _find_policy_error(given, _budget(program, given.budget))
        if error is not None:
            raise error
    output = given.output or Path(f"{model.stem}.{core.name.replace(':', '-')}")
    write: Callable[[FirmwareProgram, Firmware, Path], None]
    if core.is_processor:
        from adrenoc.firmware.cpu.make_cpu import write_cpu_folder as write
    else:
        write = partial(write_firmware, with_object=given.with_object)
    made = make_firmware(model, core, output, write, given.wishes)
    told = {"path": str(made.path), "time_ms": made.time_ms}
    return console.tell({**firmware_to_json(made.firmware), **told}, _list_made(made, core))


def _list_made(made: MadeFirmware, core: Core) -> Iterator[Part]:
    firmware = made.firmware
    said = f"{made.path}  for the {core.title}, {show_ms(made.time_ms)}"
    yield Verdict(passed=True, text=said)
    where = "" if core.name == "cpu:host" else "  (under QEMU)"
    yield Fields(
        pairs=[
            ("layers", f"{len(firmware.layers)} (adrenoc inspect lists them)"),
            ("weights" if core.is_processor else "flash", _constants(firmware)),
            ("RAM", ram_text(firmware)),
            ("next", f"adrenoc firmware run {quote_word(made.path)} --check MODEL{where}"),
        ]
    )


def _constants(firmware: Firmware) -> str:
    return f"{show_bytes(firmware.constant_bytes)} of constants, beside the code"


def ram_text(firmware: Firmware) -> str:
    """Tell what a model takes of RAM."""
    from math import prod

    from adrenoc.firmware.mcu.network import WIDTHS

    specs = (*firmware.inputs, *firmware.outputs)
    borders = sum(prod(spec.shape) * WIDTHS[spec.dtype] for spec in specs)
    return f"{firmware.arena_bytes} bytes of arena, and {show_bytes(borders)} of inputs and outputs"


def _format_counts(counts: Counts) -> str:
    if not counts.layers:
        return f"no instructions were counted: {counts.reason}"
    return f"{sum(counts.layers):,} instructions, counted under QEMU: not cycles"


def _list_layers(firmware: Firmware, counts: Sequence[int] = ()) -> Table:
    counted: dict[str, Callable[[tuple[Layer, int]], Cell]] = {
        "instructions": lambda one: figure(one[1], ","),
        "a MAC": lambda one: (
            figure(one[1] / one[0].multiply_adds, ".3f") if one[0].multiply_adds else ""
        ),
    }
    counts = counts or [0] * len(firmware.layers)
    return tabulate(
        zip(firmware.layers, counts, strict=True),
        {
            "layer": lambda one: one[0].name,
            "operator": lambda one: one[0].operator,
            "makes": lambda one: Name(one[0].tensor),
            "how": lambda one: one[0].how,
            "flash": lambda one: one[0].flash_bytes,
            "scratch": lambda one: one[0].scratch_bytes,
            "MACs": lambda one: figure(one[0].multiply_adds, ","),
            **(counted if any(counts) else {}),
        },
    )


def _list_decisions(firmware: Firmware) -> Table:
    return tabulate(
        firmware.decisions,
        {
            "subject": lambda one: Name(one.subject),
            "decision": lambda one: one.taken,
            "reason": lambda one: one.reason,
        },
    )


def _budget(program: FirmwareProgram, limits: dict[str, int]) -> Budget:
    from adrenoc.firmware.mcu.make import budget_of

    return budget_of(program, **{f"max_{name}": value for name, value in limits.items()})


def _find_policy_error(given: CoreModel, budget: Budget) -> AdrenocError | None:
    if not budget.broken:
        return None
    return PolicyError(
        f"{given.model} breaks {len(budget.broken)} of the limits that were given: "
        + "; ".join(budget.broken),
        hint=f"adrenoc firmware check {quote_word(given.model)} --device {given.core.name}",
    )


@click.command("check", cls=HeavyCommand)
@give_options(_Planned)
def check_firmware_command(given: _Planned) -> int:
    """Say what an int8 MODEL would take of a core: flash, RAM, instructions by layer.

    With --limit it fails where the plan breaks them, and lists all that it breaks.
    """
    from adrenoc.firmware.cpu.make_cpu import count_on_cpu
    from adrenoc.firmware.mcu.folder import firmware_to_json
    from adrenoc.firmware.mcu.make import count_layers, plan_firmware

    core = given.core
    program, firmware = plan_firmware(given.model, core, given.wishes)
    budget = _budget(program, given.budget)
    counts = (count_on_cpu if core.is_processor else count_layers)(program, firmware)

    flash = f"{show_bytes(budget.flash_bytes)} of {budget.flash_how}"
    ram = f"{show_bytes(budget.ram_bytes)}: {ram_text(firmware)}"
    name = "weights" if core.is_processor else "flash"
    parts = (
        Title(text=firmware.name, detail=f"on the {core.title}"),
        Fields(pairs=[(name, flash), ("RAM", ram), ("time", _format_counts(counts))]),
        _list_layers(firmware, counts.layers),
        _list_alive(budget),
        _list_decisions(firmware),
    )
    told = {**firmware_to_json(firmware), "budget": asdict(budget), "instructions": asdict(counts)}
    return console.tell(told, parts, error=_find_policy_error(given, budget))


def _list_alive(budget: Budget) -> Table:
    return tabulate(
        budget.alive,
        {
            "layer": lambda one: one.layer,
            "operator": lambda one: one.operator,
            "arena": lambda one: one.bytes,
            "alive": lambda one: ", ".join(f"{shorten(name)} {size}" for name, size in one.blocks),
        },
    )


def inspect_if_firmware(path: Path) -> bool:
    """Show what is in a folder of C; False of a bundle."""
    from adrenoc.firmware.mcu.folder import firmware_to_json, is_firmware, open_firmware

    if not is_firmware(path):
        return False
    firmware = open_firmware(path)

    specs = (*firmware.inputs, *firmware.outputs)
    ends = ["input"] * len(firmware.inputs) + ["output"] * len(firmware.outputs)
    fields = [
        (end, f"{spec.name} {list(spec.shape)}, {b.scale:.6g} * (stored {-b.zero:+d})")
        for end, spec, b in zip(ends, specs, firmware.borders, strict=True)
    ]
    console.tell(
        firmware_to_json(firmware),
        Title(text=firmware.name, detail=f"for {firmware.device}"),
        Fields(pairs=[*fields, ("flash", _constants(firmware)), ("RAM", ram_text(firmware))]),
        _list_layers(firmware),
        _list_decisions(firmware),
    )
    return True


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
    if core.is_processor or not core.has_dsp:
        raise OptionError(
            f"kernels for {core.name} have one schedule each: there is nothing to tune",
            hint=f"adrenoc firmware compile MODEL --device {core.name}",
        )
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
