"""A GPU of the user's own: a file in the form of `targets/gpu/`, given as `--device FILE.toml`.

It may come from somebody else, so it is read with a bound, sets no options, and its limits have to
be such as an OpenCL device can have.  Its name is the file's, which a bundle remembers; the bundle
carries the text too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from adrenoc.base.errors import TargetError
from adrenoc.base.files.read import MOST_TOML_BYTES, read_plain, sha256_bytes
from adrenoc.base.text import names
from adrenoc.base.text.spelling import quote_word
from adrenoc.target.cost.cost import NO_COSTS, Cost
from adrenoc.target.gpu import Gpu
from adrenoc.target.sourced import SourcedFile

SUFFIX = ".toml"
_HOST = re.compile(r"\s*host\s*:\s*", re.IGNORECASE)

# What the least of the listed GPUs has, or an embedded profile of OpenCL promises,
# and what nothing that computes in 32 bits of an index may pass.
_BOUNDS = {
    "image2d_max_width_texels": (2048, 1 << 20),
    "image2d_max_height_texels": (2048, 1 << 20),
    "image_max_array_layers": (1, 1 << 20),
    "image_pitch_align_texels": (1, 1 << 16),
    "max_read_image_args": (8, 1 << 16),
    "max_write_image_args": (8, 1 << 16),
    "max_kernel_args": (16, 1 << 16),
    "max_kernel_args_bytes": (256, 1 << 20),
    "max_work_group_size": (4, 1 << 16),
    "local_mem_bytes": (2048, 1 << 24),
    "max_alloc_bytes": (1 << 20, 1 << 48),
}
_LEAST_SIDE = 64
"""Of work-groups: teams lie along x or y; along z one is enough."""
_MAY_BE_NONE = "limits.local_mem_bytes"
"""What kernels can do without altogether, as where barriers do not wait."""
_RATES = {
    "compute_units": (1, 4096),
    "micro_sps_per_compute_unit": (1, 64),
    "registers_vec4_per_fiber_slot": (16, 4096),
    "wave_granularity": (1, 64),
    "max_waves_per_compute_unit": (1, 256),
    "fp32_fma_lanes": (1, 10**6),
    "fp16_rate": (0.01, 100.0),
    "clock_mhz": (1, 10**5),
    "texels_per_clock": (0.001, 10.0**6),
    "dram_gb_per_s": (0.01, 10.0**5),
    "launch_us": (0.001, 10.0**6),
    "host_launch_us": (0.001, 10.0**6),
    "split_winograd_least_pixels": (1, 10**9),
}
_WAVES = frozenset(1 << power for power in range(11))
_TIMES = 1000.0
"""How much more or less than the listed table a cost may be."""


@dataclass(frozen=True, kw_only=True)
class OwnFile:
    """The text of such a file; `path` is as the user gave it, `name` the last part of it.

    `device` is what the options say in place of the path, where the text was made of them.
    """

    path: Path
    name: str
    text: str
    device: str = ""

    @staticmethod
    def read(path: Path, *, name: str | None = None) -> OwnFile:
        """Read a file; `name` is what it was called, where it lies under another name.

        Raises:
            TargetError: it cannot be read, or its name is none that a bundle can hold.
        """
        called = path.name if name is None else name
        _check_name(path, called)
        try:
            text = read_plain(path, MOST_TOML_BYTES).decode("utf-8")
        except OSError as error:
            raise TargetError(
                f"cannot read the target file {path}: {error.strerror or error}",
                hint="adrenoc targets",
            ) from error
        except UnicodeDecodeError as error:
            raise TargetError(
                f"{path} is not a TOML file: it is not UTF-8 at byte {error.start}",
                hint=f"correct {quote_word(path)}, then: adrenoc targets {quote_word(path)}",
            ) from error
        return OwnFile(path=path, name=called, text=text)

    @property
    def stem(self) -> str:
        """Return the name without its ending."""
        return self.name.removesuffix(SUFFIX)

    @property
    def sha256(self) -> str:
        """Return the digest of the text, in hexadecimal."""
        return sha256_bytes(self.text.encode("utf-8"))

    def parse(self) -> SourcedFile:
        """Parse the text as a target file.

        Raises:
            TargetError: it is not TOML.
        """
        shown = "" if self.device else str(self.path)
        return SourcedFile(self.path, text=self.text, device=shown)

    @staticmethod
    def base(file: SourcedFile) -> str | None:
        """Return the listed device that a file builds on."""
        return file.text(file.tables, "base") if "base" in file.tables else None


def check_output_name(path: Path) -> None:
    """Check that a file of this name could be read again as a target.

    Raises:
        TargetError: `--device` would take it for something else.
    """
    if own_path(path.name) is None:
        raise TargetError(
            f"the target file {path} is to end in {SUFFIX}, which --device knows it by",
            hint=f"--output {quote_word(path)}{SUFFIX}",
        )
    _check_name(path, path.name)


def _check_name(path: Path, name: str) -> None:
    if not names.BUNDLE.allows(name):
        raise TargetError(
            f"the target file {path} is called {name!r}, expected {names.BUNDLE.expected}",
            hint=f"rename {quote_word(path)}, to phone.toml for one",
        )


def own_path(name: str) -> Path | None:
    """Return the file that a device is: `FILE.toml`, `host:FILE.toml`; None for a listed one."""
    if not name.strip().lower().endswith(SUFFIX):
        return None
    return Path(_HOST.sub("", name, count=1) if _HOST.match(name) else name)


def is_for_host(name: str) -> bool:
    """Return whether a device's name asks for a CPU part for this machine."""
    return _HOST.match(name) is not None


def check_figures(file: SourcedFile, gpu: Gpu) -> None:
    """Refuse limits and rates that no OpenCL device has.

    Raises:
        TargetError: naming the first.
    """
    for section, bounds in (("limits", _BOUNDS), ("performance", _RATES)):
        for name, (least, most) in bounds.items():
            value, key = getattr(getattr(gpu, section), name), f"{section}.{name}"
            is_none = value is None or (value == 0 and key == _MAY_BE_NONE)
            if not is_none and not least <= value <= most:
                raise file.wrong(key, f"seen {value}", f"from {least} to {most}")
    sides = gpu.limits.group_sides
    if min(sides[:2]) < min(_LEAST_SIDE, gpu.limits.max_work_group_size):
        expected = f"{_LEAST_SIDE} or more in x and y"
        raise file.wrong("limits.max_work_item_sizes", f"seen {list(sides)}", expected)
    sizes = gpu.performance.wave_sizes or ()
    if not _WAVES.issuperset(sizes):
        seen = f"seen {list(sizes)}"
        raise file.wrong("performance.wave_sizes", seen, "powers of two, 1024 at most")


def check_costs(file: SourcedFile, cost: Cost, listed: Cost) -> None:
    """Refuse what is no measured cost: which schedules are tried is not for a file to say.

    Raises:
        TargetError: naming the first.
    """
    families = {key: table for key, table in file.table("cost").items() if key != "base"}
    for family, table in families.items():
        for key in table:
            before, now = (getattr(getattr(of, family), key) for of in (listed, cost))
            name = f"cost.{family}.{key}"
            if not is_cost(key, before):
                raise file.wrong(name, f"seen {now}", "a cost; this bounds what is tried")
            if not before / _TIMES <= now <= before * _TIMES:
                expected = f"from a thousandth to a thousand times {before}"
                raise file.wrong(name, f"seen {now}", expected)


def is_cost(key: str, value: object) -> bool:
    """Return whether a key of a cost table is a cost to measure, and no bound of a search."""
    is_number = isinstance(value, float) or key.endswith("_clocks")
    return is_number and not key.startswith(NO_COSTS)


def clamp_value(key: str, value: float, cost: Cost) -> float:
    """Return what a file may say for "performance.launch_us" that is nearest to what was measured.

    `cost` is the table that the file builds on.
    """
    section, _, name = key.rpartition(".")
    if section.startswith("cost."):
        listed = getattr(getattr(cost, section.removeprefix("cost.")), name)
        least, most = listed / _TIMES, listed * _TIMES
    else:
        bounds: dict[str, tuple[float, float]] = {**_BOUNDS, **_RATES}
        least, most = bounds.get(name, (value, value))
    return type(value)(min(max(value, least), most))
