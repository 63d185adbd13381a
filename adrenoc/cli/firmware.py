"""What `compile`, `check` and `inspect` do for microcontrollers and CPUs: folders of C."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from adrenoc.base.text.spelling import quote_word

if TYPE_CHECKING:
    from adrenoc.base.errors import AdrenocError
    from adrenoc.firmware.mcu.budget import Budget
    from adrenoc.firmware.mcu.core import Core
    from adrenoc.firmware.mcu.count import Counts
    from adrenoc.firmware.mcu.folder import Firmware
    from adrenoc.firmware.mcu.make import MadeFirmware, Wishes

_LIMITS = ("max_flash_kib", "max_ram_kib")
_WISHES = ("tuning_log", "spare_flash_kib")


def refuse_others(ctx: click.Context, allowed: Collection[str], what: str = "folders of C") -> None:
    """Refuse options that mean nothing for `what`, such as a microcontroller or a CPU.

    Raises:
        click.UsageError: one was given.
    """
    for param in ctx.command.params:
        given = ctx.get_parameter_source(param.name or "")
        if given is click.core.ParameterSource.COMMANDLINE and param.name not in allowed:
            raise click.UsageError(f"{param.opts[-1]} is not for {what}", ctx)


def compile_firmware(
    ctx: click.Context,
    model: Path,
    core: Core,
    output: Path | None,
    limits: tuple[int | None, int | None],
    *,
    wishes: tuple[str | None, int],
    with_object: bool,
    explain: bool,
    as_json: bool,
) -> None:
    """Write the folder and say what is in it; `wishes`: a tuning log, KiB of flash to spare."""
    from adrenoc.cli import console
    from adrenoc.firmware.mcu.folder import plain_firmware
    from adrenoc.firmware.mcu.make import Wishes, make_firmware

    wanted = Wishes(tuning_log=wishes[0], spare_flash_kib=wishes[1])

    allowed = {"model", "target", "output", "explain", "as_json", *_LIMITS}
    refuse_others(ctx, allowed if core.is_processor else {*allowed, "with_object", *_WISHES})
    if any(limits):
        budget = _budget(model, core, limits, wanted)
        if budget.broken:
            raise _policy_error(model, core, budget)
    output = output or Path(f"{model.stem}.{core.name.replace(':', '-')}")
    if core.is_processor:
        from adrenoc.firmware.cpu.make_cpu import make_cpu_folder

        made = make_cpu_folder(model, core, output)
    else:
        made = make_firmware(model, core, output, with_object=with_object, wishes=wanted)
    if as_json:
        plain = plain_firmware(made.firmware)
        console.print_json({**plain, "path": str(made.path), "time_ms": made.time_ms})
        return
    _show_made(made, core)
    if explain:
        _show_layers(made.firmware)
    _show_decisions(made.firmware, explain=explain)


def _show_made(made: MadeFirmware, core: Core) -> None:
    from adrenoc.cli import console

    firmware = made.firmware
    console.blank()
    console.print_verdict(True, f"{made.path}  for the {core.title}, {console.ms(made.time_ms)}")
    console.print_fields(
        [
            ("layers", f"{len(firmware.layers)} (--explain lists them)"),
            ("weights" if core.is_processor else "flash", _constants(firmware)),
            ("RAM", ram_text(firmware)),
            ("next", f"adrenoc run {quote_word(made.path)} --check MODEL" + _where(core)),
        ]
    )


def _where(core: Core) -> str:
    return "" if core.name == "cpu:host" else "  (under QEMU)"


def _constants(firmware: Firmware) -> str:
    from adrenoc.cli import console

    return f"{console.size(firmware.constant_bytes)} of constants, beside the code"


def ram_text(firmware: Firmware) -> str:
    """What a model takes of RAM."""
    from math import prod

    from adrenoc.cli import console
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
    from adrenoc.cli import console

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


def _show_decisions(firmware: Firmware, *, explain: bool) -> None:
    from adrenoc.cli import console

    if not explain or not firmware.decisions:
        return
    console.blank()
    console.print_table(
        ("subject", "decision", "reason"),
        [(console.short(d.subject), d.taken, d.reason) for d in firmware.decisions],
    )


def _budget(
    model: Path, core: Core, limits: tuple[int | None, int | None], wishes: Wishes
) -> Budget:
    from adrenoc.firmware.mcu.budget import budget_of
    from adrenoc.firmware.mcu.make import plan_firmware

    program, _ = plan_firmware(model, core, wishes)
    return budget_of(program, max_flash_kib=limits[0], max_ram_kib=limits[1])


def _policy_error(model: Path, core: Core, budget: Budget) -> AdrenocError:
    from adrenoc.base.errors import PolicyError

    return PolicyError(
        f"{model} breaks {len(budget.broken)} of the limits that were given: "
        + "; ".join(budget.broken),
        hint=f"adrenoc check {quote_word(model)} --device {core.name}",
    )


def check_firmware(
    ctx: click.Context,
    model: Path,
    core: Core,
    limits: tuple[int | None, int | None],
    *,
    wishes: tuple[str | None, int],
    as_json: bool,
) -> None:
    """Say what a model would take of a core, and fail where limits are broken.

    `limits` and `wishes` are as of `compile_firmware`.
    """
    from adrenoc.cli import console
    from adrenoc.firmware.cpu.count_cpu import count_on_cpu
    from adrenoc.firmware.mcu.budget import budget_of
    from adrenoc.firmware.mcu.count import count_layers
    from adrenoc.firmware.mcu.folder import plain_firmware
    from adrenoc.firmware.mcu.make import Wishes, plan_firmware

    allowed = {"model", "target", "as_json", *_LIMITS}
    refuse_others(ctx, allowed if core.is_processor else {*allowed, *_WISHES})
    wanted = Wishes(tuning_log=wishes[0], spare_flash_kib=wishes[1])
    program, firmware = plan_firmware(model, core, wanted)
    budget = budget_of(program, max_flash_kib=limits[0], max_ram_kib=limits[1])
    count = count_on_cpu if core.is_processor else count_layers
    counts = count(program, firmware)
    if as_json:
        plain = {**plain_firmware(firmware), "budget": asdict(budget)}
        console.print_json({**plain, "instructions": asdict(counts)})
        if budget.broken:
            ctx.exit(_policy_error(model, core, budget).exit_code)
        return
    console.blank()
    console.print_title(firmware.name, f"on the {core.title}")
    console.print_fields(
        [
            (
                "weights" if core.is_processor else "flash",
                f"{console.size(budget.flash_bytes)} of {budget.flash_how}",
            ),
            ("RAM", f"{console.size(budget.ram_bytes)}: {ram_text(firmware)}"),
            ("time", _format_counts(counts)),
        ]
    )
    _show_layers(firmware, counts.layers)
    _show_alive(budget)
    _show_decisions(firmware, explain=True)
    if budget.broken:
        raise _policy_error(model, core, budget)


def _show_alive(budget: Budget) -> None:
    from adrenoc.cli import console

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


def inspect_if_firmware(ctx: click.Context, path: Path, *, as_json: bool) -> bool:
    """Show what is in a folder of C; False of a bundle."""
    from adrenoc.cli import console
    from adrenoc.firmware.mcu.folder import is_firmware, open_firmware, plain_firmware

    if not is_firmware(path):
        return False
    refuse_others(ctx, {"bundle", "as_json"})
    firmware = open_firmware(path)
    if as_json:
        console.print_json(plain_firmware(firmware))
        return True
    console.print_title(firmware.name, f"for {firmware.device}")
    specs = (*firmware.inputs, *firmware.outputs)
    ends = ["input"] * len(firmware.inputs) + ["output"] * len(firmware.outputs)
    fields = [
        (end, f"{spec.name} {list(spec.shape)}, {border.scale:.6g} * (stored {-border.zero:+d})")
        for end, spec, border in zip(ends, specs, firmware.borders, strict=True)
    ]
    flash = f"{console.size(firmware.constant_bytes)} of constants, beside the code"
    console.print_fields([*fields, ("flash", flash), ("RAM", ram_text(firmware))])
    _show_layers(firmware)
    _show_decisions(firmware, explain=True)
    return True
