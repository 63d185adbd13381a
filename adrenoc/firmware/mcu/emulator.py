"""Runs a firmware folder under QEMU: its numbers, and the instructions of each layer.

QEMU's time goes on by one nanosecond an instruction here, and the board's clock ticks every few
tens of them: a layer is counted to within two ticks.  These are instructions, not cycles.
"""

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from adrenoc.base.errors import BundleError, CheckFailedError, DependencyError, DeviceError
from adrenoc.base.files.aside import TemporaryFolder
from adrenoc.base.host.proc import run_tool
from adrenoc.bundle.manifest import TensorSpec
from adrenoc.firmware.mcu.core import Core, load_core
from adrenoc.firmware.mcu.folder import Firmware, border_names, ctype_of, print_model, read_files
from adrenoc.firmware.mcu.network import WIDTHS
from adrenoc.firmware.mcu.program import FirmwareProgram

_BOARD = Path(__file__).parent / "board"
_COMPILER, _EMULATOR = "arm-none-eabi-gcc", "qemu-system-arm"
OPTIMISATION = "-O2"
INSTALL = "apt-get install gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm"
_LINE_BYTES = 64


@dataclass(frozen=True, kw_only=True, eq=False)
class Emulated:
    """What a run gave; `layer_instructions` in the order of the folder's layers."""

    outputs: dict[str, np.ndarray]
    layer_instructions: tuple[int, ...]
    code_bytes: int

    @property
    def instructions(self) -> int:
        """Instructions of the whole run."""
        return sum(self.layer_instructions)


def missing_tools() -> list[str]:
    """Return the programs that are needed and not installed."""
    return [name for name in (_COMPILER, _EMULATOR) if shutil.which(name) is None]


def check_tools(device: str) -> None:
    """Say what to install for a device's emulation, where that is missing. Raises DependencyError
    where a tool is missing."""
    if missing := missing_tools():
        raise lack_of_tools(device, missing, INSTALL)


def lack_of_tools(device: str, missing: Sequence[str], hint: str) -> DependencyError:
    """Return what says that these programs are not installed."""
    return DependencyError(
        f"{' and '.join(missing)}, which run a model for {device} on this computer, "
        f"{'is' if len(missing) == 1 else 'are'} not installed",
        hint=hint,
    )


def overrun_error() -> CheckFailedError:
    """Return what says that a model wrote where it may not."""
    return CheckFailedError(
        "the model wrote beyond its arena: a defect of adrenoc, not of the model",
        hint="report this with the model and the command",
    )


def run_program(source: str, core: Core, *, defines: Sequence[str], timeout_s: float) -> str:
    """Return what a whole program, which may call `board_ticks` and `board_print`, prints on QEMU.
    Raises ToolError where it does not compile; DeviceError where the emulated board has too little
    memory, faulted or did not end."""
    with TemporaryFolder("firmware") as work:
        (work / "program.c").write_text(source, encoding="utf-8")
        options = [OPTIMISATION, *(f"-D{define}" for define in defines)]
        return _emulate(core, _build(work, core, {"program.c": options}), timeout_s)


def run_firmware(
    folder: Path, firmware: Firmware, inputs: Mapping[str, np.ndarray], *, timeout_s: float = 600.0
) -> Emulated:
    """Build the folder's model for QEMU's board and run it once.

    Raises BundleError where the folder's code was changed, or is of another model than its report;
    DependencyError where a tool is missing; ToolError where the model does not compile; DeviceError
    where the emulated board has too little memory, faulted or did not end.
    """
    code = read_files(folder, ("model.h", "model.c"))  # whose fault is no matter of tools
    check_tools(firmware.device)
    core = load_core(firmware.device)
    with TemporaryFolder("firmware") as work:
        for name, content in code.items():
            (work / name).write_bytes(content)
        (work / "harness.c").write_text(_harness(firmware, inputs), encoding="utf-8")
        hook = "-DMODEL_LAYER_DONE(number)=board_layer_done(number)"
        (work / "hook.h").write_text("void board_layer_done(int number);\n", encoding="utf-8")
        model = [OPTIMISATION, hook, "-include", str(work / "hook.h")]
        image = _build(work, core, {"model.c": model, "harness.c": ["-O1"]})
        code_bytes = _size(work / "model.o")
        said = _emulate(core, image, timeout_s)
    return _read(said, firmware, core, code_bytes)


def code_bytes(program: FirmwareProgram) -> int | None:
    """Code and constants of a program in flash, as the compiler makes them; None without one.
    Raises ToolError where it does not compile."""
    if shutil.which(_COMPILER) is None:
        return None
    with TemporaryFolder("firmware") as work:
        for name, text in print_model(program).items():
            (work / name).write_text(text, encoding="utf-8")
        made = work / "model.o"
        flags = [*program.core.flags, "-std=c11", OPTIMISATION, f"-I{work}"]
        source = str(work / "model.c")
        run_tool([_COMPILER, *flags, "-c", source, "-o", str(made)], deed="compile model.c")
        return _size(made)


def _size(object_: Path) -> int:
    sizes = run_tool(["arm-none-eabi-size", str(object_)], deed="measure the model")
    return int(sizes.splitlines()[1].split()[0])


def _build(work: Path, core: Core, sources: Mapping[str, Sequence[str]]) -> Path:
    """Return a program for QEMU's board of files in a folder, each with its options."""
    flags = [*core.flags, "-std=c11", "-ffunction-sections", "-fdata-sections", f"-I{work}"]
    objects = []
    files = {work / name: options for name, options in sources.items()}
    for source, more in {**files, _BOARD / "startup.c": ["-O1"]}.items():
        made = work / f"{source.stem}.o"
        run_tool(
            [_COMPILER, *flags, *more, "-c", str(source), "-o", str(made)],
            deed=f"compile {source.name}",
        )
        objects.append(str(made))
    image = work / "image.elf"
    board = core.emulated
    run_tool(
        [
            _COMPILER,
            *core.flags,
            "-nostartfiles",
            "--specs=nano.specs",
            "--specs=nosys.specs",
            "-Wl,--gc-sections",
            f"-Wl,--defsym=flash_start={board.flash_start or 0}",
            f"-Wl,--defsym=flash_bytes={board.flash_kib << 10}",
            f"-Wl,--defsym=ram_start={board.ram_start}",
            f"-Wl,--defsym=ram_bytes={board.ram_kib << 10}",
            "-T",
            str(_BOARD / "board.ld"),
            *objects,
            "-o",
            str(image),
        ],
        deed="link the model for QEMU's board",
    )
    return image


def run_to_end(
    command: Sequence[str], timeout_s: float, *, where: str, hint: str, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a model's program, and hand back what it said and how it ended. Raises DeviceError where
    it did not end in time; `where` ends that sentence."""
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
            stdin=subprocess.DEVNULL,
            cwd=folder,
        )
    except subprocess.TimeoutExpired as error:
        raise DeviceError(
            f"the model did not end within {timeout_s:.0f} s{where}", hint=hint
        ) from error


def _emulate(core: Core, image: Path, timeout_s: float) -> str:
    board = core.emulated
    command = [
        _EMULATOR,
        *("-M", board.machine, "-display", "none", "-monitor", "none", "-serial", "none"),
        *("-semihosting-config", "enable=on,target=native", "-icount", "shift=0"),
        *("-kernel", str(image)),
    ]
    done = run_to_end(
        command, timeout_s, where=" under QEMU", hint="--repeat 1, or a smaller model"
    )
    said = done.stdout + done.stderr
    if done.returncode != 0 or "DONE" not in said:
        raise DeviceError(
            f"QEMU's {board.machine} ended with {done.returncode}: {said.strip()[-300:]}",
            hint=f"{_EMULATOR} --version (7.2 and later are known to work)",
        )
    return said


def _harness(firmware: Firmware, inputs: Mapping[str, np.ndarray]) -> str:
    """Return a program that runs the model once and prints its outputs and counts."""
    lines = ['#include "model.h"', ""]
    arguments = []
    for number, spec in enumerate(firmware.inputs):
        flat = ",".join(map(str, inputs[spec.name].reshape(-1).tolist()))
        lines.append(f"static const {ctype_of(spec.dtype)} in{number}[] = {{{flat}}};")
        arguments.append(f"in{number}")
    sizes = [_size_bytes(spec) for spec in firmware.outputs]
    for stem, specs in (("INPUT", firmware.inputs), ("OUTPUT", firmware.outputs)):
        for name, spec in zip(border_names(stem, specs), specs, strict=True):
            size = _size_bytes(spec)
            lines.append(f'_Static_assert(MODEL_{name}_BYTES == {size}, "of another model");')
    for number, spec in enumerate(firmware.outputs):
        count = int(np.prod(spec.shape))
        lines.append(f"static {ctype_of(spec.dtype)} out{number}[{count}];")
        arguments.append(f"out{number}")
    lines.append(f"static uint32_t ticks[{len(firmware.layers) + 1}];")
    lines.append("static int32_t arena[(MODEL_ARENA_BYTES + 3) / 4 + 4];")
    lines.append(_PRINTING)
    guard = "arena[(MODEL_ARENA_BYTES + 3) / 4 + i]"
    lines.append("int main(void) {")
    lines.append(f"  for (int i = 0; i < 4; ++i) {guard} = 0x5AFE0000 + i;")
    lines += ["  model_reset(arena);"] if firmware.state_bytes else []
    lines.append("  ticks[0] = board_ticks();")
    lines.append(f"  model_run({', '.join([*arguments, 'arena'])});")
    lines.append(f"  for (int i = 0; i < 4; ++i) if ({guard} != 0x5AFE0000 + i)")
    lines.append('    board_print("OVERRUN\\n");')
    for number, size in enumerate(sizes):
        lines.append(f"  print_bytes({number}, (const int8_t *)out{number}, {size});")
    lines.append(f"  for (int i = 0; i < {len(firmware.layers)}; ++i) print_ticks(i);")
    lines += ['  board_print("DONE\\n");', "  return 0;", "}", ""]
    return "\n".join(lines)


def _size_bytes(spec: TensorSpec) -> int:
    return int(np.prod(spec.shape)) * WIDTHS[spec.dtype]


_PRINTING = f"""
void board_print(const char *text);
uint32_t board_ticks(void);
void board_layer_done(int number);
void board_layer_done(int number) {{ ticks[number + 1] = board_ticks(); }}
static void print_hex(uint32_t value, int digits) {{
  char text[9];
  for (int i = 0; i < digits; ++i) text[i] = "0123456789abcdef"[value >> 4 * (digits - 1 - i) & 15];
  text[digits] = 0;
  board_print(text);
}}
static void print_bytes(int number, const int8_t *bytes, int count) {{
  for (int i = 0; i < count; ++i) {{
    if (i % {_LINE_BYTES} == 0) {{ board_print(i ? "\\nO " : "O "); print_hex((uint32_t)number, 2);
      board_print(" "); }}
    print_hex((uint8_t)bytes[i], 2);
  }}
  board_print("\\n");
}}
static void print_ticks(int i) {{
  board_print("T ");
  print_hex((ticks[i + 1] - ticks[i]) & 0xFFFFFFu, 8);
  board_print("\\n");
}}
"""


def _read(said: str, firmware: Firmware, core: Core, code_bytes: int) -> Emulated:
    if "OVERRUN" in said:
        raise overrun_error()
    outputs = {}
    for number, spec in enumerate(firmware.outputs):
        found: Sequence[str] = re.findall(rf"^O {number:02x} ([0-9a-f]+)$", said, re.MULTILINE)
        content = bytes.fromhex("".join(found))
        if len(content) != _size_bytes(spec):
            raise _refuse_other(firmware, f"gave {len(content)} bytes for output '{spec.name}'")
        outputs[spec.name] = np.frombuffer(content, spec.dtype).reshape(spec.shape)
    ticks = [int(text, 16) for text in re.findall(r"^T ([0-9a-f]{8})$", said, re.MULTILINE)]
    if len(ticks) != len(firmware.layers):
        raise _refuse_other(firmware, f"counted {len(ticks)} layers")
    return Emulated(
        outputs=outputs,
        layer_instructions=tuple(round(t * core.emulated.instructions_a_tick) for t in ticks),
        code_bytes=code_bytes,
    )


def _refuse_other(firmware: Firmware, seen: str) -> BundleError:
    return BundleError(
        f"{firmware.name} {seen}, which is not what its report says", hint="compile the model again"
    )
