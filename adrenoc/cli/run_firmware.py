"""What `run` does for microcontrollers and CPUs: a folder of C, beside the model's own runtime."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from adrenoc.base.text.spelling import quote_word
from adrenoc.cli.firmware import ram_text, refuse_others

if TYPE_CHECKING:
    from adrenoc.check.inputs import InputFile
    from adrenoc.firmware.mcu.emulator import Emulated
    from adrenoc.firmware.mcu.folder import Firmware


def run_if_firmware(
    ctx: click.Context,
    path: Path,
    given: tuple[tuple[InputFile, ...], int, int | None],
    reference: Path | None,
    save: Path | None,
    *,
    as_json: bool,
) -> bool:
    """Run a folder of C, under QEMU where need be, and compare every byte; False of a bundle.

    `given`: inputs, a seed for those that are missing, and threads.
    """
    from adrenoc.check.inputs import make_inputs
    from adrenoc.cli import console
    from adrenoc.firmware.mcu.folder import is_firmware, open_firmware

    if not is_firmware(path):
        return False
    from adrenoc.firmware.mcu.core import load_core
    from adrenoc.firmware.mcu.emulator import run_firmware

    firmware = open_firmware(path)
    allowed = {"bundle", "files", "seed", "reference", "save", "as_json"}
    on_processor = load_core(firmware.device).is_processor
    refuse_others(ctx, {*allowed, "threads"} if on_processor else allowed)
    files, seed, threads = given
    inputs = make_inputs(firmware.inputs, files, seed=seed)
    expected, judge = None, ""
    if reference is not None:
        from adrenoc.check.firmware import expected_outputs, judge_of

        expected, judge = expected_outputs(firmware, reference, inputs), judge_of(reference)
    if on_processor:
        from adrenoc.firmware.cpu.run_cpu import run_cpu_folder

        result = run_cpu_folder(path, firmware, inputs, threads=threads or 1)
    else:
        result = run_firmware(path, firmware, inputs)
    if save is not None:
        from adrenoc.check.numpy_files import save_arrays

        save_arrays(save, result.outputs)
    wrong = None if expected is None else _differences(result, expected, firmware)
    if as_json:
        console.print_json(_plain(firmware, result, wrong))
    else:
        _show_run(firmware, result, judge if wrong == {} else "")
    if wrong:
        from adrenoc.base.errors import CheckFailedError

        error = CheckFailedError(
            f"{sum(wrong.values())} numbers differ from what {judge}",
            hint=f"adrenoc run {quote_word(path)} --check {quote_word(reference)} --seed N "
            "for other inputs",
        )
        if not as_json:
            raise error
        ctx.exit(error.exit_code)
    return True


def _differences(result: Emulated, expected: Any, firmware: Firmware) -> dict[str, int]:
    """How many numbers of each output differ."""
    from adrenoc.base.errors import InputError

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


def _show_run(firmware: Firmware, result: Emulated, judge: str) -> None:
    """The counts, and where all was right, whose numbers it was held against."""
    from adrenoc.cli import console
    from adrenoc.firmware.mcu.emulator import OPTIMISATION

    console.blank()
    where = "" if firmware.device == "cpu:host" else "QEMU's "
    console.print_title(firmware.name, f"on {where}{firmware.device}, gcc {OPTIMISATION}")
    if result.layer_instructions:
        _show_counted(firmware, result)
    memory = [
        ("constants", f"{console.size(result.code_bytes)}, with code on microcontrollers"),
        ("RAM", ram_text(firmware)),
    ]
    console.print_fields(memory)
    if judge:
        console.print_verdict(True, f"every byte is what {judge}")


def _show_counted(firmware: Firmware, result: Emulated) -> None:
    from adrenoc.cli import console

    console.print_table(
        ("layer", "operator", "how", "instructions", "share"),
        [
            (layer.name, layer.operator, layer.how, f"{count:,}", f"{share:.1f} %")
            for layer, count in zip(firmware.layers, result.layer_instructions, strict=True)
            for share in [100 * count / max(result.instructions, 1)]
        ],
        right=("instructions", "share"),
    )
    told = f"{result.instructions:,} instructions: not cycles, and not of a board or a phone"
    console.print_fields([("in all", told)])
