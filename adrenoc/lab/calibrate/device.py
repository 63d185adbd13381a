"""What a device says of itself, as far as measures ask: bounded, for it comes from outside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_MOST_LETTERS = 80
_MOST = 1 << 48


@dataclass(frozen=True, kw_only=True)
class Device:
    """Names are in letters that a file and a terminal can hold."""

    name: str
    driver: str
    """Whole, as it says it: the compiler's version comes last, after more than a name has room
    for."""
    is_cpu: bool
    c_version: int
    compute_units: int
    clock_mhz: int
    """0 or 1 where the driver does not tell, as Adreno's does not."""
    max_work_group_size: int
    max_work_item_sizes: tuple[int, ...]
    """In x, y, z; empty where it does not tell."""
    local_memory_bytes: int
    max_allocation_bytes: int
    max_parameter_bytes: int
    image_width: int
    image_height: int
    image_layers: int
    image_pitch_texels: int
    read_images: int
    write_images: int
    extensions: frozenset[str]
    facts: Mapping[str, Any]
    """All that it said, for `adreno_number` and reports."""

    @staticmethod
    def from_facts(facts: Mapping[str, Any]) -> Device:
        """Read what `adrenoc.opencl.devices` says of one."""
        limits, images = _table(facts, "limits"), _table(facts, "images")
        listed = facts.get("extensions", ())
        names = listed if isinstance(listed, list | tuple) else ()
        return Device(
            name=plain(facts.get("name")) or "an OpenCL device",
            driver=str(facts.get("driver") or "unknown"),
            is_cpu=facts.get("type") == "cpu",
            c_version=_number(facts, "c_version"),
            compute_units=max(1, _number(limits, "compute_units")),
            clock_mhz=_number(limits, "clock_mhz"),
            max_work_group_size=_number(limits, "max_work_group_size"),
            max_work_item_sizes=_sides(limits.get("max_work_item_sizes")),
            local_memory_bytes=_number(limits, "local_memory_bytes"),
            max_allocation_bytes=_number(limits, "max_allocation_bytes"),
            max_parameter_bytes=_number(limits, "max_parameter_bytes"),
            image_width=_number(images, "max_width"),
            image_height=_number(images, "max_height"),
            image_layers=_number(images, "max_layers"),
            image_pitch_texels=_number(images, "pitch_alignment_texels"),
            read_images=_number(images, "max_read_arguments"),
            write_images=_number(images, "max_write_arguments"),
            extensions=frozenset(str(name) for name in names),
            facts=facts,
        )

    @property
    def with_driver(self) -> str:
        """The device and its driver, as what was seen on them tells of both."""
        return f"{self.name}, driver {self.shown_driver}"

    @property
    def shown_driver(self) -> str:
        """What a text has room for of the driver's words."""
        return plain(self.driver)

    @property
    def identity(self) -> str:
        """What tells two devices apart, and two drivers of one."""
        return f"{self.name}, driver {self.driver}"

    def lacks(self, extension: str) -> str:
        """Why an extension cannot be used; empty where it is listed."""
        return "" if extension in self.extensions else f"the driver lists no {extension}"

    @property
    def lacks_images(self) -> str:
        """Why images cannot be asked about; empty where there are some."""
        return "" if self.image_width else "the device has no images"


def plain(text: object) -> str:
    """A name in letters that every file, terminal and page holds; what is no such letter is `?`."""
    letters = " ".join(str(text if text is not None else "").split())[:_MOST_LETTERS]
    return "".join(
        c if c.isascii() and c.isprintable() and c not in '"\\@' else "?" for c in letters
    )


def _sides(told: object) -> tuple[int, ...]:
    sides = tuple(told) if isinstance(told, list | tuple) else ()
    good = len(sides) == 3 and all(type(s) is int and 0 < s <= _MOST for s in sides)
    return sides if good else ()


def _table(facts: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = facts.get(key)
    return value if isinstance(value, Mapping) else {}


def _number(table: Mapping[str, Any], key: str) -> int:
    value = table.get(key)
    return value if isinstance(value, int) and 0 <= value <= _MOST else 0
