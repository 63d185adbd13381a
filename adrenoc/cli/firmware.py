"""`adrenoc firmware`: int8 networks as folders of C, for microcontrollers and CPUs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from adrenoc.base.errors import PolicyError
from adrenoc.base.text.spelling import quote_word
from adrenoc.cli import console
from adrenoc.cli.guarded import HeavyCommand, InputPath, OutputPath
from adrenoc.cli.model_params import CoreParam
from adrenoc.cli.named_values import limit_option
from adrenoc.cli.records import argument, give_options, option

if TYPE_CHECKING:
    from collections.abc import Callable

    from adrenoc.base.errors import AdrenocError
    from adrenoc.firmware.mcu.budget import Budget, Counts
    from adrenoc.firmware.mcu.core import Core
    from adrenoc.firmware.mcu.folder import Firmware
    from adrenoc.firmware.mcu.make import MadeFirmware, Wishes
    from adrenoc.firmware.mcu.program import FirmwareProgram


@dataclass(frozen=True, kw_only=True)
class CoreModel:
    """A model, and the core to compile it for."""

    model: Path = argument(type=InputPath())
    core: Core = option(
        "--device",
        type=CoreParam(),
        default="cortex-m4",
        show_default=True,
        metavar="CORE",
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
        "--tuning-log",
        type=InputPath(as_text=True),
        metavar="FILE",
        help="For microcontrollers: take the schedules that `adrenoc firmware tune` measured.",
    )

    def __post_init__(self) -> None:
        if self.core.is_processor and (self.spare_flash_kib or self.tuning_log):
            raise click.UsageError(
                "--limit spare-flash-kib and --tuning-log are for microcontrollers"
            )

    @property
    def spare_flash_kib(self) -> int:
        """Return how much more flash weights may take (KiB)."""
        return self.limit.get("spare_flash_kib", 0)

    @property
    def budget(self) -> dict[str, int]:
        """Return the limits beyond which a plan fails."""
        return {name: kib for name, kib in self.limit.items() if name != "spare_flash_kib"}

    @property
    def wishes(self) -> Wishes:
        """Return how the plan is chosen."""
        from adrenoc.firmware.mcu.make import Wishes

        return Wishes(tuning_log=self.tuning_log, spare_flash_kib=self.spare_flash_kib)


@dataclass(frozen=True, kw_only=True)
class _Compiled(_Planned):
    output: Path | None = option(
        "-o",
        "--output",
        type=OutputPath(),
        metavar="DIR",
        help="Where the folder goes.  [default: MODEL's name with the core's, here]",
    )
    with_object: bool = option(
        "--object", is_flag=True, help="For microcontrollers: a compiled model.o too."
    )

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
    return console.tell({**firmware_to_json(made.firmware), **told}, lambda: _show_made(made, core))


def _show_made(made: MadeFirmware, core: Core) -> None:
    firmware = made.firmware
    console.blank()
    console.print_verdict(True, f"{made.path}  for the {core.title}, {console.ms(made.time_ms)}")
    where = "" if core.name == "cpu:host" else "  (under QEMU)"
    console.print_fields(
        [
            ("layers", f"{len(firmware.layers)} (adrenoc inspect lists them)"),
            ("weights" if core.is_processor else "flash", _constants(firmware)),
            ("RAM", ram_text(firmware)),
            ("next", f"adrenoc firmware run {quote_word(made.path)} --check MODEL{where}"),
        ]
    )


def _constants(firmware: Firmware) -> str:
    return f"{console.size(firmware.constant_bytes)} of constants, beside the code"


def ram_text(firmware: Firmware) -> str:
    """Tell what a model takes of RAM."""
    from math import prod

    from adrenoc.firmware.mcu.network import WIDTHS

    specs = (*firmware.inputs, *firmware.outputs)
    borders = sum(prod(spec.shape) * WIDTHS[spec.dtype] for spec in specs)
    return (
        f"{firmware.arena_bytes} bytes of arena, and {console.size(borders)} of inputs and outputs"
    )


def _format_counts(counts: Counts) -> str:
    if not counts.layers:
        return f"no instructions were counted: {counts.reason}"
    return f"{sum(counts.layers):,} instructions, counted under QEMU: not cycles"


def _show_layers(firmware: Firmware, counts: tuple[int, ...] = ()) -> None:
    console.blank()
    more = ("instructions", "a MAC") if counts else ()
    console.print_table(
        ("layer", "operator", "makes", "how", "flash", "scratch", "MACs", *more),
        [
            (
                layer.name,
                layer.operator,
                console.short(layer.tensor),
                layer.how,
                str(layer.flash_bytes),
                str(layer.scratch_bytes),
                f"{layer.multiply_adds:,}",
                *(
                    text
                    for count in counts[number : number + 1]
                    for text in (f"{count:,}", _a_mac(count, layer.multiply_adds))
                ),
            )
            for number, layer in enumerate(firmware.layers)
        ],
        right=("flash", "scratch", "MACs", *more),
    )


def _a_mac(count: int, multiply_adds: int) -> str:
    return f"{count / multiply_adds:.3f}" if multiply_adds else ""


def _show_decisions(firmware: Firmware) -> None:
    if not firmware.decisions:
        return
    console.blank()
    console.print_table(
        ("subject", "decision", "reason"),
        [(console.short(d.subject), d.taken, d.reason) for d in firmware.decisions],
    )


def _budget(program: FirmwareProgram, limits: dict[str, int]) -> Budget:
    from adrenoc.firmware.mcu.budget import budget_of

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
    from adrenoc.firmware.mcu.budget import count_layers
    from adrenoc.firmware.mcu.folder import firmware_to_json
    from adrenoc.firmware.mcu.make import plan_firmware

    core = given.core
    program, firmware = plan_firmware(given.model, core, given.wishes)
    budget = _budget(program, given.budget)
    counts = (count_on_cpu if core.is_processor else count_layers)(program, firmware)

    def show() -> None:
        console.blank()
        console.print_title(firmware.name, f"on the {core.title}")
        flash = f"{console.size(budget.flash_bytes)} of {budget.flash_how}"
        ram = f"{console.size(budget.ram_bytes)}: {ram_text(firmware)}"
        name = "weights" if core.is_processor else "flash"
        console.print_fields([(name, flash), ("RAM", ram), ("time", _format_counts(counts))])
        _show_layers(firmware, counts.layers)
        _show_alive(budget)
        _show_decisions(firmware)

    told = {**firmware_to_json(firmware), "budget": asdict(budget), "instructions": asdict(counts)}
    return console.tell(told, show, error=_find_policy_error(given, budget))


def _show_alive(budget: Budget) -> None:
    console.blank()
    console.print_table(
        ("layer", "operator", "arena", "alive"),
        [
            (
                alive.layer,
                alive.operator,
                str(alive.bytes),
                ", ".join(f"{console.short(name)} {size}" for name, size in alive.blocks),
            )
            for alive in budget.alive
        ],
        right=("arena",),
    )


def inspect_if_firmware(path: Path) -> bool:
    """Show what is in a folder of C; False of a bundle."""
    from adrenoc.firmware.mcu.folder import firmware_to_json, is_firmware, open_firmware

    if not is_firmware(path):
        return False
    firmware = open_firmware(path)

    def show() -> None:
        console.print_title(firmware.name, f"for {firmware.device}")
        specs = (*firmware.inputs, *firmware.outputs)
        ends = ["input"] * len(firmware.inputs) + ["output"] * len(firmware.outputs)
        fields = [
            (end, f"{spec.name} {list(spec.shape)}, {b.scale:.6g} * (stored {-b.zero:+d})")
            for end, spec, b in zip(ends, specs, firmware.borders, strict=True)
        ]
        console.print_fields(
            [*fields, ("flash", _constants(firmware)), ("RAM", ram_text(firmware))]
        )
        _show_layers(firmware)
        _show_decisions(firmware)

    console.tell(firmware_to_json(firmware), show)
    return True
