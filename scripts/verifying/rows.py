"""A row of `scripts/verify models`: what it holds, and how it is shown."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Row:
    """What one model with one preset gave; all figures but the error are of the adreno bundle.

    `operators_*` count operators by the memory that they write, `texture_share` is the part of
    the tensors between kernels that lies in textures, `range_error` is the largest error over
    the range of its output, of the worst output;
    `floor_error` is what ideal rounding gives and `floor_ratio` how many times it we are, as root
    mean squares; `cpu_s` is all that the row took.  None is what was not reached.
    """

    model: str
    preset: str
    verdict: str = "failed"
    operators_texture: int | None = None
    operators_buffer: int | None = None
    operators_cpu: int | None = None
    texture_share: float | None = None
    launches: int | None = None
    kernels: int | None = None
    pad_kernels: int | None = None
    copy_kernels: int | None = None
    layout_kernels: int | None = None
    compile_s: float | None = None
    memory_bytes: int | None = None
    run_ms: float | None = None
    range_error: float | None = None
    floor_error: float | None = None
    floor_ratio: float | None = None
    cpu_s: float | None = None
    error: str = ""


COLUMNS = (
    "model",
    "preset",
    "texture/buffer/CPU",
    "in textures",
    "launches",
    "kernels",
    "pad/copy/layout",
    "compile",
    "peak memory",
    "run",
    "error",
    "floor",
    "CPU",
    "verdict",
)


def cells(row: Row) -> tuple[str, ...]:
    """A row as text, in the order of COLUMNS; what was not reached is a dash."""

    def text(shape: str, *values: float | None) -> str:
        return "-" if None in values else shape.format(*values)

    memory = None if row.memory_bytes is None else row.memory_bytes / 2**20
    operators = (row.operators_texture, row.operators_buffer, row.operators_cpu)
    moves = (row.pad_kernels, row.copy_kernels, row.layout_kernels)
    return (
        row.model,
        row.preset,
        text("{}/{}/{}", *operators),
        text("{:.0%}", row.texture_share),
        text("{}", row.launches),
        text("{}", row.kernels),
        text("{}/{}/{}", *moves),
        text("{:.1f} s", row.compile_s),
        text("{:.1f} MiB", memory),
        text("{:.0f} ms", row.run_ms),
        text("{:.1e}", row.range_error),
        text("{:.1e} ({:.2f} x)", row.floor_error, row.floor_ratio),
        text("{:.0f} s", row.cpu_s),
        row.verdict,
    )


def show(rows: list[Row]) -> None:
    """The table, and below it what went wrong."""
    from adrenoc.cli import console

    console.print_table(COLUMNS, [cells(row) for row in rows], right=COLUMNS[2:-1])
    for row in rows:
        if row.error:
            print(f"  {row.model} {row.preset}: {row.error}")
