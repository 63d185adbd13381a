"""From rows to the values of a target file: what an estimate reckons with, as it was measured.

Rates are a second; a target's are a clock.  The clock is what the device told while it was
measured; where it tells none, that of the listed GPU, and where there is none either, 1000 MHz: the
products, which are what counts, are right under any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from adrenoc.lab.calibrate.calibrate import Row
from adrenoc.lab.calibrate.device import Device
from adrenoc.target.cost.cost import Cost
from adrenoc.target.gpu import Performance

NOMINAL_MHZ = 1000
_FLOAT4_BYTES = 16
MOST_DOUBT = 0.25
"""The largest relative doubt of a value that a target file gets."""


@dataclass(frozen=True, kw_only=True)
class Value:
    """A value of a target file; `key` is "performance.launch_us", `rows` are what it is from."""

    key: str
    value: float | int | bool
    how: str
    rows: tuple[Row, ...] = ()

    @property
    def spread(self) -> float:
        """The relative spread of the least certain row that the value is from."""
        return max((row.spread for row in self.rows), default=0.0)

    @property
    def doubt(self) -> float:
        """How far off it may be, relative: what its rows are off by together."""
        return sum(row.doubt for row in self.rows)

    @property
    def is_certain(self) -> bool:
        """Whether to reckon with it: a listed value is better than one that may be anything."""
        return self.doubt <= MOST_DOUBT


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What a derivation may look at."""

    rows: Mapping[str, Row]
    clock_mhz: float
    micro_sps: float
    wave: int


Derive = Callable[[_Asked], "tuple[float, tuple[str, ...], str] | None"]
"""The value, the names of its rows and how it was got; None where a row is missing."""


def derive(
    rows: Sequence[Row], device: Device, listed: Performance, cost: Cost
) -> tuple[Value, ...]:
    """The values that these rows give, in the order of a target file."""
    measured = {row.name: row for row in rows if row.is_measured and row.value}
    clock, where = _clock(rows, device, listed)
    units = device.compute_units
    per_unit = listed.micro_sps_per_compute_unit or cost.unstated.micro_sps_per_compute_unit
    asked = _Asked(
        rows=measured,
        clock_mhz=clock,
        micro_sps=float(units * per_unit),
        wave=cost.pipes.wave_threads,
    )
    values = [
        Value(key="performance.compute_units", value=units, how="as the driver says"),
        Value(key="performance.clock_mhz", value=round(clock), how=where),
    ]
    for key, rule in RULES.items():
        found = rule(asked)
        if found is None:
            continue
        value, names, how = found
        used = tuple(measured[name] for name in names)
        whole = key in _WHOLE
        values.append(
            Value(
                key=key,
                value=max(1, round(value)) if whole else float(f"{value:.4g}"),
                how=how,
                rows=used,
            )
        )
    return tuple(values)


def _clock(rows: Sequence[Row], device: Device, listed: Performance) -> tuple[float, str]:
    told = [row.clock_mhz for row in rows if row.clock_mhz > 1]
    if told:
        return max(told), f"the highest that it told, from {min(told):.0f} MHz on"
    if listed.clock_mhz is not None:
        return listed.clock_mhz, "it tells none: the listed GPU's"
    if device.clock_mhz > 1:
        return device.clock_mhz, "as the driver says"
    return NOMINAL_MHZ, "it tells none: rates a clock are for this one, so that products are right"


def _best(asked: _Asked, *names: str) -> Row | None:
    """The row of the highest figure."""
    known = [asked.rows[name] for name in names if name in asked.rows]
    return max(known, key=lambda row: row.value or 0.0) if known else None


def _a_clock(asked: _Asked, row: Row) -> float:
    """A rate in 10^9 a second as one a clock."""
    return (row.value or 0.0) * 1e3 / asked.clock_mhz


def _lanes(asked: _Asked) -> tuple[float, tuple[str, ...], str] | None:
    row = _best(asked, "mad.float", "mad.float4")
    if row is None:
        return None
    return _a_clock(asked, row), (row.name,), f"{row.value:.4g} G multiply-adds a second"


def _half_rate(asked: _Asked) -> tuple[float, tuple[str, ...], str] | None:
    half, whole = _best(asked, "mad.half", "mad.half4"), _best(asked, "mad.float", "mad.float4")
    if half is None or whole is None:
        return None
    ratio = (half.value or 0.0) / (whole.value or 1.0)
    how = f"{half.value:.4g} over {whole.value:.4g} G multiply-adds a second"
    return ratio, (half.name, whole.name), how


def _texels(asked: _Asked) -> tuple[float, tuple[str, ...], str] | None:
    row = _best(asked, "texel.half4.cached", "texel.float4.cached")
    if row is None:
        return None
    return _a_clock(asked, row), (row.name,), f"{row.value:.4g} G texels a second"


def _dram(asked: _Asked) -> tuple[float, tuple[str, ...], str] | None:
    row = asked.rows.get("memory.read")
    return None if row is None else (row.value or 0.0, (row.name,), "reads of 32 MiB")


def _launch(asked: _Asked) -> tuple[float, tuple[str, ...], str] | None:
    row = asked.rows.get("launch.queue")
    return None if row is None else (row.value or 0.0, (row.name,), "kernels that do nothing")


def _local_bytes(asked: _Asked) -> tuple[float, tuple[str, ...], str] | None:
    """What makes vectors of four floats take as long as they did."""
    wide = asked.rows.get("local.float4")
    if wide is None:
        return None
    rate = _FLOAT4_BYTES * asked.wave / _wave_clocks(asked, wide)
    return rate, (wide.name,), "of four floats a thread"


def _local_width(asked: _Asked) -> tuple[float, tuple[str, ...], str] | None:
    rows = ("local.half4", "local.float4")
    if not all(name in asked.rows for name in rows):
        return None
    return 1.0, rows, "both widths were measured, so that nothing is left to weigh"


def _local_clocks(asked: _Asked) -> tuple[float, tuple[str, ...], str] | None:
    narrow, wide = asked.rows.get("local.half4"), asked.rows.get("local.float4")
    if narrow is None:
        return None
    clocks = _wave_clocks(asked, narrow)
    how = "of four halves a thread"
    if wide is None:
        return clocks, (narrow.name,), how
    more = _wave_clocks(asked, wide) / clocks
    how += f"; of four floats {more:.3g} times as long, so that it charges {describe_charge(more)}"
    return clocks, (narrow.name, wide.name), how


def describe_charge(more: float) -> str:
    """What local memory charges, where reads of twice the bytes take so many times as long."""
    return "by bytes" if more > 1.5 else "by reads"


def _wave_clocks(asked: _Asked, row: Row) -> float:
    """Clocks of a micro shader processor for one read by each thread of a wave."""
    return asked.wave * asked.micro_sps / _a_clock(asked, row)


def _bytes(asked: _Asked) -> tuple[float, tuple[str, ...], str] | None:
    row = asked.rows.get("buffer.thread")
    if row is None:
        return None
    how = f"buffers of 64 KiB at {row.value:.4g} GB/s"
    return _a_clock(asked, row) / asked.micro_sps, (row.name,), how


def _latency(name: str) -> Derive:
    def rule(asked: _Asked) -> tuple[float, tuple[str, ...], str] | None:
        row = asked.rows.get(name)
        if row is None:
            return None
        return (row.value or 0.0) * asked.clock_mhz / 1e3, (name,), f"{row.value:.4g} ns"

    return rule


RULES: Mapping[str, Derive] = {
    "performance.fp32_fma_lanes": _lanes,
    "performance.fp16_rate": _half_rate,
    "performance.texels_per_clock": _texels,
    "performance.dram_gb_per_s": _dram,
    "performance.launch_us": _launch,
    "cost.pipes.bytes_per_clock": _bytes,
    "cost.pipes.local_read_clocks": _local_clocks,
    "cost.pipes.local_bytes_per_clock": _local_bytes,
    "cost.pipes.local_by_width": _local_width,
    "cost.pipes.texture_latency_clocks": _latency("latency.texel"),
    "cost.pipes.buffer_latency_clocks": _latency("latency.buffer.64k"),
}
_WHOLE = frozenset(
    {
        "performance.fp32_fma_lanes",
        "cost.pipes.texture_latency_clocks",
        "cost.pipes.buffer_latency_clocks",
    }
)
