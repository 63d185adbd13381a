"""The figures that a build is judged by: of one bundle, without running it."""

from __future__ import annotations

from dataclasses import dataclass

from adrenoc.bundle.bundle import Bundle


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What a bundle takes.

    `kernels` are texts, `launches` how often one starts in a run, `copies` those that only move
    elements, between devices too.  `time_us` is the sum of the launches' floors by the target's
    rates, without what launching takes; None where they do not tell of each launch.
    """

    kernels: int
    launches: int
    copies: int
    texture_nodes: int
    buffer_nodes: int
    cpu_nodes: int
    memory_bytes: int
    size_bytes: int
    time_us: float | None


def figures_of(bundle: Bundle) -> Figures:
    """Return the figures of a bundle, or of one of its buckets.

    Raises:
        BundleError: its list of launches cannot be understood.
    """
    manifest = bundle.manifest
    statistics = manifest.statistics
    launches = bundle.launches()
    floors = [launch.floor_us for launch in launches]
    known = [floor for floor in floors if floor is not None]
    return Figures(
        kernels=len(manifest.kernels),
        launches=len(launches) or sum(kernel.calls for kernel in manifest.kernels),
        copies=statistics.pad_kernels
        + statistics.copy_kernels
        + statistics.layout_kernels
        + statistics.device_copies,
        texture_nodes=statistics.nodes_texture,
        buffer_nodes=statistics.nodes_buffer,
        cpu_nodes=statistics.nodes_cpu,
        memory_bytes=manifest.memory.peak_bytes,
        size_bytes=bundle.bytes,
        time_us=round(sum(known), 3) if floors and len(known) == len(floors) else None,
    )
