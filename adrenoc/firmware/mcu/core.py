"""The cores that can be compiled for: files in `targets/mcu/` and `targets/cpu/`."""

from dataclasses import dataclass

from adrenoc.base.errors import TargetError
from adrenoc.base.files.read import data_folder
from adrenoc.base.text.spelling import did_you_mean
from adrenoc.target.sourced import SourcedFile

ARITHMETICS = ("plain", "dsp", "mve", "neon")
"""What kernels are written with: plain C, packed products of the DSP extension, or vectors too; on
application processors NEON, and what of it the core has when it runs."""
CPU_PREFIX = "cpu:"
_GROUPS = {"neon": 16}


@dataclass(frozen=True, kw_only=True)
class CoreFacts:
    """`cpu` and `float_flags` are the compiler's, `arithmetic` is one of `ARITHMETICS`."""

    cpu: str
    arithmetic: str
    float_flags: str | None = None


@dataclass(frozen=True, kw_only=True)
class EmulatedMachine:
    """The board that QEMU emulates; code begins at address 0 where nothing else is said."""

    machine: str
    flash_kib: int
    ram_start: int
    ram_kib: int
    instructions_a_tick: float
    flash_start: int | None = None


@dataclass(frozen=True, kw_only=True)
class Core:
    """A core to compile for, by the name of its file; one without a board is a phone's own."""

    name: str
    title: str
    facts: CoreFacts
    board: EmulatedMachine | None
    sources: tuple[tuple[str, str], ...] = ()

    @property
    def has_dsp(self) -> bool:
        """Return whether it multiplies pairs of 16 bits at once."""
        return self.facts.arithmetic in ("dsp", "mve")

    @property
    def is_processor(self) -> bool:
        """Return whether it is a phone's or a computer's, with threads and files."""
        return self.board is None

    @property
    def emulated(self) -> EmulatedMachine:
        """Return the board that QEMU emulates."""
        if self.board is None:
            raise TypeError(f"{self.name} has no board")
        return self.board

    @property
    def channel_group(self) -> int:
        """Return the number of channels whose whole groups are worth keeping."""
        return _GROUPS.get(self.facts.arithmetic, 4)

    @property
    def flags(self) -> tuple[str, ...]:
        """Return what makes GCC and clang compile for it."""
        return (f"-mcpu={self.facts.cpu}", "-mthumb", *(self.facts.float_flags or "").split())


def core_names() -> tuple[str, ...]:
    """Return the names of all cores."""
    place = data_folder("targets")
    processors = (CPU_PREFIX + path.stem for path in place.glob("cpu/*.toml"))
    return (*sorted(path.stem for path in place.glob("mcu/*.toml")), *sorted(processors))


def is_core(name: str) -> bool:
    """Return whether a device's name is meant as that of a core."""
    return name.lower().startswith(("cortex-m", CPU_PREFIX))


def load_core(name: str) -> Core:
    """Find a core by name. Raises TargetError where the name is unknown, or its file is wrong."""
    known, wanted = core_names(), name.lower()
    if wanted not in known:
        raise TargetError(
            f'unknown device "{name}"{did_you_mean(wanted, list(known))}, expected one of '
            + ", ".join(known),
            hint="adrenoc targets",
        )
    room = "cpu" if wanted.startswith(CPU_PREFIX) else "mcu"
    place = data_folder("targets") / room / f"{wanted.removeprefix(CPU_PREFIX)}.toml"
    file = SourcedFile(place)
    file.check_keys(file.tables, {"title", "sources", "core", "board"})
    facts = file.facts(CoreFacts, "core")
    if facts.arithmetic not in ARITHMETICS:
        expected = "one of " + ", ".join(ARITHMETICS)
        raise file.wrong("core.arithmetic", f"seen {facts.arithmetic!r}", expected)
    return Core(
        name=wanted,
        title=file.text(file.tables, "title"),
        facts=facts,
        board=file.facts(EmulatedMachine, "board") if room == "mcu" else None,
        sources=tuple(file.sources.items()),
    )
