"""What was measured as a target file, which `--device FILE.toml` takes."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from adrenoc.calibrate.calibrate import Row
from adrenoc.calibrate.derive import Value
from adrenoc.calibrate.device import Device
from adrenoc.target.cost.cost import Cost
from adrenoc.target.own_file import OwnFile, clamp_value
from adrenoc.target.target import Target

_HELD = "held to what kernels are written for"
_MOST_LAYERS = 2048
_ANY = "adreno"
"""What stands for all GPUs."""
_WAVES = tuple(float(1 << power) for power in range(11))


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A device, the listed one that stands beside it, what was measured and what follows."""

    device: Device
    base: str
    cost: Cost
    """The table of the listed one."""
    date: datetime.date
    rows: tuple[Row, ...]
    values: tuple[Value, ...]

    @property
    def source(self) -> str:
        """What every value is from."""
        return (
            f"measured on {self.device.name}, driver {self.device.driver}, {self.date.isoformat()}"
        )


def base_of(target: Target) -> str:
    """The listed device that a file has to build on to be like a target."""
    if target.own is not None:
        return OwnFile.base(target.own.parse()) or _ANY
    return _ANY if target.name == "host" else re.sub("^host:(?=a|sm)", "adreno:", target.name)


def target_toml(measured: Measured) -> str:
    """The file: `base` for all that no driver and no measurement tells."""
    device = measured.device
    lines = [
        "# Written by adrenoc calibrate; for --device FILE.toml, or host:FILE.toml here.",
        f'title = "{device.name}, as measured"',
        f'base = "{measured.base}"',
        "",
        "[sources]",
        f'measured = "{measured.source}"',
        f'driver = "what driver {device.driver} of {device.name} says, {measured.date}"',
        "",
        "[limits]",
        *_limits(device, measured.cost),
    ]
    for section in ("performance", "cost.pipes"):
        own = [value for value in measured.values if value.key.rpartition(".")[0] == section]
        if own:
            lines += ["", f"[{section}]", *(_line(value, measured.cost) for value in own)]
    wave = next((row for row in measured.rows if row.name == "wave" and row.is_measured), None)
    if wave is not None and wave.value in _WAVES and "[performance]" in lines:
        at = lines.index("[performance]") + 1
        lines.insert(
            at, f'wave_sizes = {{ value = [{int(wave.value or 0)}], source = "@measured" }}'
        )
    listed = list(_extensions(measured.rows))
    if listed:
        lines += ["", "[extensions]", *listed]
    return "\n".join(lines) + "\n"


def _line(value: Value, cost: Cost) -> str:
    key = value.key.rpartition(".")[2]
    text = "@measured" if value.rows else "@driver"
    spread = f", spread {100 * value.spread:.1f} %" if value.rows else ""
    kept = clamp_value(value.key, value.value, cost)
    bound = "" if kept == value.value else f"; {value.value:g} is beyond what a file may say"
    line = f'{key} = {{ value = {_number(kept)}, source = "{text}{spread}: {value.how}{bound}" }}'
    if value.is_certain:
        return line
    return f"# too uncertain to reckon with, so that the base's stands: {line}"


def _number(value: float | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _limits(device: Device, cost: Cost) -> Iterable[str]:
    told: Sequence[tuple[str, int]] = (
        ("image2d_max_width_texels", device.image_width),
        ("image2d_max_height_texels", device.image_height),
        ("image_max_array_layers", min(device.image_layers, _MOST_LAYERS)),
        ("image_pitch_align_texels", device.image_pitch_texels),
        ("max_read_image_args", device.read_images),
        ("max_write_image_args", device.write_images),
        ("max_kernel_args_bytes", device.max_parameter_bytes),
        ("max_work_group_size", device.max_work_group_size),
        ("local_mem_bytes", device.local_memory_bytes),
        ("max_alloc_bytes", device.max_allocation_bytes),
    )
    for key, seen in told:
        if seen > 0:
            kept = clamp_value(f"limits.{key}", seen, cost)
            held = "" if kept == seen else f", which says {seen}; {_HELD}"
            yield f'{key} = {{ value = {kept}, source = "@driver{held}" }}'
    fp16 = "true" if not device.lacks("cl_khr_fp16") else "false"
    yield f'fp16 = {{ value = {fp16}, source = "@driver: cl_khr_fp16" }}'
    version = "3.0" if device.c_version >= 300 else "2.0"
    yield f'opencl_c = {{ value = "{version}", source = "@driver: {device.c_version}" }}'


def _extensions(rows: Sequence[Row]) -> Iterable[str]:
    """Those that were tried: what is listed and does not work is not there."""
    for row in sorted(rows, key=lambda row: row.name):
        name = row.name.removeprefix("extension.")
        if name == row.name or row.status not in ("measured", "failed"):
            continue
        works = row.is_measured and row.value == 1.0
        said = "" if works else ": listed, but does not work"
        yield f'{name} = {{ value = {str(works).lower()}, source = "@measured{said}" }}'
