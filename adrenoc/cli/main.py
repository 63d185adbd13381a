"""The command group, which lists commands in sections, and the one place where errors become
messages and exit codes."""

from __future__ import annotations

import errno
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

import adrenoc
from adrenoc.base.errors import AdrenocError, HostMemoryError
from adrenoc.base.files.aside import FULL_CODES, remove_held
from adrenoc.base.files.outputs import output_error
from adrenoc.base.host.memory import leave_objects, memory_errors, multiply_in_one_thread
from adrenoc.base.text.report import Table, tabulate
from adrenoc.cli import console
from adrenoc.cli.build import build_command
from adrenoc.cli.calibrate import calibrate_command
from adrenoc.cli.chat import chat_command
from adrenoc.cli.check import check_accuracy_command, check_command
from adrenoc.cli.compile import compile_command
from adrenoc.cli.console import (
    discard_output,
    flush_output,
    prepare_streams,
    say_aside,
    say_error,
    say_json,
)
from adrenoc.cli.devices import (
    devices_command,
    import_command,
    prove_command,
    report_command,
    verify_device_command,
    warm_command,
)
from adrenoc.cli.firmware import (
    check_firmware_command,
    compile_firmware_command,
    run_firmware_command,
    tune_firmware_command,
)
from adrenoc.cli.fleet import fleet_command
from adrenoc.cli.guarded import JSON_OPTION, Command
from adrenoc.cli.inspect import compare_command, diff_command, inspect_command
from adrenoc.cli.interrupts import Interrupts, Terminated, end_process, interrupts
from adrenoc.cli.package import package_command
from adrenoc.cli.run import run_command
from adrenoc.cli.runtime import (
    build_runtime_command,
    install_unit_command,
    serve_command,
    serve_model_command,
)
from adrenoc.cli.targets import doctor_command, targets_command
from adrenoc.cli.tune import tune_command, tune_log_command
from adrenoc.cli.write_views import view_command


class SectionedGroup(click.Group):
    """A command line of many commands: help lists them by what they are for, as they are added.
    Click's own list is in the order of the alphabet, and cuts sentences that a line does not
    hold."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self._sections: dict[str, list[str]] = {}

    def add_sections(self, sections: Mapping[str, Sequence[click.Command]]) -> None:
        """Add commands under a title each: `Devices` -> devices, serve."""
        for title, commands in sections.items():
            for command in commands:
                self.add_command(command)
                self._sections.setdefault(title, []).append(str(command.name))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one list a section; all have their sentences at the same column."""
        widest = max((len(name) for name in self.commands), default=0)
        for title, names in self._sections.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(name.ljust(widest), _first_sentence(self.commands[name])) for name in names]
                )


def make_group(name: str, text: str, commands: Sequence[click.Command]) -> click.Group:
    """Return a group of commands, whose help lists them in this order."""
    group = SectionedGroup(name, help=text)
    group.add_sections({"Commands": commands})
    return group


def _first_sentence(command: click.Command) -> str:
    """Return what a command does, as the first paragraph of its help says it."""
    return " ".join((command.help or "").split("\n\n")[0].split())


@click.command("presets", cls=Command)
def presets_command() -> int:
    """List the presets, what each of them sets, and what --set may say."""
    from adrenoc.ir.options import DEFAULT_PRESET, SETTINGS, list_presets, show_setting

    presets = list_presets()

    listed = tabulate(
        presets,
        {
            "preset": lambda one: one.name + " (default)" * (one.name == DEFAULT_PRESET),
            "what it is for": lambda one: one.title,
            "sets": lambda one: ", ".join(
                f"{name} = {show_setting(value)}" for name, value in one.options
            ),
        },
    )
    told = [
        {"name": preset.name, "title": preset.title, "options": dict(preset.options)}
        for preset in presets
    ]
    settings = Table(columns=("--set", "means"), rows=tuple(SETTINGS.items()))
    return console.tell(told, listed, settings)


INTERNAL_EXIT_CODE = 1
INTERRUPTED_EXIT_CODE = 130
_ONLY_NAMED = "NoArgsIsHelpError"
"""What newer versions of Click raise where a group is called without a command: its help."""


@click.group(
    cls=SectionedGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(adrenoc.__version__, prog_name="adrenoc")
def cli() -> None:
    """Compile ONNX and TFLite models for the Adreno GPU of Android phones.

    \b
    adrenoc compile mobilenet_v2.onnx --device adreno:750
    adrenoc compile mobilenet_v2.onnx --device host
    adrenoc run mobilenet_v2.adrenoc --check mobilenet_v2.onnx
    """


cli.params.append(JSON_OPTION)  # of every command, and before its name too
cli.add_sections(
    {
        "From a model to a phone": (
            compile_command,
            check_command,
            check_accuracy_command,
            run_command,
            inspect_command,
            view_command,
            diff_command,
            package_command,
            targets_command,
            doctor_command,
        ),
        "More": (
            chat_command,
            serve_model_command,
            build_command,
            presets_command,
            compare_command,
            prove_command,
        ),
        "Groups of commands": (
            make_group(
                "tune",
                "Search faster schedules of kernels, and keep them in logs.",
                (tune_command, tune_log_command),
            ),
            make_group(
                "device",
                "Find, verify, measure and use the devices that run bundles.",
                (
                    devices_command,
                    verify_device_command,
                    calibrate_command,
                    warm_command,
                    fleet_command,
                    report_command,
                    import_command,
                ),
            ),
            make_group(
                "firmware",
                "Compile int8 networks to C, for microcontrollers and CPUs.",
                (
                    compile_firmware_command,
                    check_firmware_command,
                    run_firmware_command,
                    tune_firmware_command,
                ),
            ),
            make_group(
                "runtime",
                "Build what runs bundles on a device, and serve this machine to others.",
                (build_runtime_command, install_unit_command, serve_command),
            ),
        ),
    }
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; no error leaves it as a traceback but ours.
    Without `argv` it is that of the process, which a signal ends here."""
    args = list(sys.argv[1:] if argv is None else argv)
    prepare_streams()
    if argv is None:
        multiply_in_one_thread()
    with interrupts() as asked:
        try:
            code = _run(args, asked)
            flush_output()
        except AdrenocError as error:
            code = _show(error, as_json="--json" in args)
        except BrokenPipeError:
            # The reader has left (`adrenoc inspect ... | head`): no message, and none at exit.
            discard_output()
            code = 0
        except Terminated:
            pass  # what was half done is gone
        # A signal that came while C++ called Python may have become an error of some other kind.
        if asked.number:
            say_aside(
                f"ended by {signal.Signals(asked.number).name}; nothing half-written was left"
            )
            code = asked.exit_code
        if asked.number or asked.is_interrupted:
            remove_held()  # what was made and not yet in the hands of who removes it
            if argv is None:
                end_process(code)
    if argv is None:
        leave_objects()
    return code


def _run(args: list[str], asked: Interrupts) -> int:
    as_json = "--json" in args
    try:
        with asked.alone(), memory_errors("this command"):
            result = cli.main(args, prog_name="adrenoc", standalone_mode=False)
    except AdrenocError as error:
        return _show(error, as_json=as_json)
    except click.UsageError as error:
        return _show_usage(error, args)
    except SystemExit:
        # Click's own way to end where a reader has left, and with 1, which is for defects.
        raise BrokenPipeError(errno.EPIPE, "the reader of the output has left") from None
    except (KeyboardInterrupt, click.Abort):
        say_aside("interrupted; nothing half-written was left")
        return INTERRUPTED_EXIT_CODE
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        typed = _find_system_error(error)
        return _defect(error, as_json=as_json) if typed is None else _show(typed, as_json=as_json)
    except Exception as error:  # noqa: BLE001
        return _defect(error, as_json=as_json)
    return result if isinstance(result, int) else 0


def _show_usage(error: click.UsageError, args: list[str]) -> int:
    """Say what is wrong with a command line; of a group alone, what it has."""
    text = error.format_message()
    if type(error).__name__ == _ONLY_NAMED:
        say_aside(text)
        return error.exit_code
    command = error.ctx.command_path if error.ctx else _name_command(args)
    message = (text[:1].lower() + text[1:]).rstrip(".")
    kind, hint = type(error).__name__, f"{command} --help"
    return _tell(kind, message, hint, error.exit_code, as_json="--json" in args)


def _name_command(args: Sequence[str]) -> str:
    """Return the command as it was called, for errors of which Click does not say it."""
    words = ["adrenoc"]
    command: click.Command = cli
    for word in args:
        if not isinstance(command, click.Group) or word not in command.commands:
            break
        words, command = [*words, word], command.commands[word]
    return " ".join(words)


def _find_system_error(error: OSError) -> AdrenocError | None:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return HostMemoryError(
            "this process may open no more files than it has", hint="ulimit -n 1024"
        )
    if error.errno in FULL_CODES and error.filename is None:
        discard_output()  # click prints its help there by itself
        return output_error(Path("standard output"), error)
    return None


def _defect(error: Exception, *, as_json: bool) -> int:
    say_aside(traceback.format_exc().rstrip())
    return _tell(
        "InternalError",
        f"this is a defect of adrenoc, not of your input ({type(error).__name__})",
        "report the lines above with the model and the command (ADRENOC_DUMP_DIR=DIR keeps the IR)",
        INTERNAL_EXIT_CODE,
        as_json=as_json,
    )


def _show(error: AdrenocError, *, as_json: bool) -> int:
    return _tell(type(error).__name__, error.message, error.hint, error.exit_code, as_json=as_json)


def _tell(kind: str, message: str, hint: str, exit_code: int, *, as_json: bool) -> int:
    """Say what went wrong, to people on stderr or to programs on stdout."""
    if as_json:
        error = {"type": kind, "message": message, "hint": hint, "exit_code": exit_code}
        try:
            say_json({"error": error})
        except AdrenocError:  # there is no place to say it
            return exit_code
    else:
        say_error(message, hint)
    return exit_code
