"""What `adrenoc check` says of a model: plain data, and the limits that it is held against."""

from collections.abc import Callable
from dataclasses import dataclass, fields

from adrenoc.base.text.spelling import list_first
from adrenoc.bundle.manifest import MemoryPlan, RegionInfo

MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class NodeVerdict:
    """One node of the plan: a kernel on the GPU, a function of the CPU, or a copy between them.

    `tensor` is the model's name of what it makes, `node` the model's node that makes it ("" where
    the model names none), `operators` all that are computed in it.  `place` is where its result
    lies: `texture`, `buffer`, `clml` or `cpu`; `reason` says why not in a texture.  `kernel` is the
    region's symbol where OpenCL ML computes it.  `kind` is `compute`, or what is only moved:
    `copy`, `layout`, `pad`, `device`.  `is_output`: it is one of the model's own outputs, which lie
    in buffers, row-major, by nature.  `reads` are the nodes before it, by `tensor`.  Bytes count
    each tensor once; times are floors in microseconds, None where the target states no rate.
    """

    tensor: str
    node: str
    operators: tuple[str, ...]
    kind: str
    is_output: bool
    place: str
    reason: str
    layout: str
    shape: tuple[int, ...]
    dtype: str
    kernel: str
    reads: tuple[str, ...]
    macs: int
    flops: int
    texels: int
    bytes_read: int
    bytes_written: int
    weight_bytes: int
    time_us: float | None
    bound: str
    alu_us: float | None
    texture_us: float | None
    dram_us: float | None

    @property
    def is_copy(self) -> bool:
        """Return whether it only moves data."""
        return self.kind != "compute"

    @property
    def is_off_texture(self) -> bool:
        """Return whether it took a step down the ladder: an operator that writes to a buffer."""
        return self.place == "buffer" and not self.is_output and self.kind != "device"


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Sums over all nodes; `time_us` leaves out CPU and OpenCL ML, and is None without any rate.

    It leaves out the launches, too: what they take by the target's figure is `gaps_us`.

    Nodes that write the model's own outputs are `output_nodes` and not `buffer_nodes`.  `bytes` are
    what all nodes read and write; `floor_bytes` would be moved if inputs, outputs and constants
    were touched once, and what lies between kernels were written once and read once.
    """

    texture_nodes: int
    output_nodes: int
    buffer_nodes: int
    cpu_nodes: int
    copies: int
    launches: int
    kernels: int
    macs: int
    flops: int
    bytes: int
    floor_bytes: int
    time_us: float | None
    gaps_us: float | None = None
    clml_nodes: int = 0


@dataclass(frozen=True, kw_only=True)
class HeldTensor:
    """A tensor in a slot, from step `first` to step `last`."""

    tensor: str
    first: int
    last: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class SlotUse:
    """One piece of storage and the tensors that take turns in it."""

    scope: str
    bytes: int
    tensors: tuple[HeldTensor, ...]


@dataclass(frozen=True, kw_only=True)
class HeldConstant:
    """A packed constant and the memory that it takes."""

    name: str
    scope: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class MemoryVerdict:
    """GPU memory: the plan, where intermediate tensors need most, and each tensor's turn.

    `pitched_bytes` is the peak if the driver pads image rows to the pitch that the target asks of
    linear images: an upper bound, for drivers tile images as they like.  `winograd_bytes` of the
    constants are weights transformed for Winograd's algorithm, which would be `plain_bytes` as they
    are.
    """

    plan: MemoryPlan
    live_step: int
    live_tensor: str
    pitched_bytes: int
    slots: tuple[SlotUse, ...]
    constants: tuple[HeldConstant, ...]
    winograd_bytes: int = 0
    plain_bytes: int = 0

    @property
    def reuse_ratio(self) -> float:
        """Bytes of the slots over what is alive at once; 1 is perfect."""
        return self.plan.slot_bytes / self.plan.live_bytes if self.plan.live_bytes else 1.0


@dataclass(frozen=True, kw_only=True)
class NearMiss:
    """A tensor that is outside of textures, or about to be: what is seen, and what helps."""

    subject: str
    seen: str
    fix: str


@dataclass(frozen=True, kw_only=True)
class DecoderVerdict:
    """What a decoder's token takes: `weight_bytes` are read whole, `cache_bytes` as far as filled.
    `tokens_per_s` is the most that the memory bus lets through with an empty context,
    `full_tokens_per_s` with all `rows`; None where the target states no rate or no byte is read."""

    rows: int
    weight_bytes: int
    cache_bytes: int
    launches: int
    tokens_per_s: float | None
    full_tokens_per_s: float | None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The whole result of a check, before any code for a device is generated.

    `unknown_rates` are the keys of the target's file that the estimate would need; `broken` are
    the limits of the policy that the model does not keep.  `regions` are what OpenCL ML computes
    with `--clml`, `kept_back` how many operators of the model it was asked for and does not.
    `decoder` is what a token takes of a decoder with caches.
    """

    model: str
    target: str
    target_title: str
    preset: str
    totals: Totals
    memory: MemoryVerdict
    near_misses: tuple[NearMiss, ...]
    unknown_rates: tuple[str, ...]
    broken: tuple[str, ...]
    nodes: tuple[NodeVerdict, ...]
    decisions: tuple[dict[str, str], ...]
    regions: tuple[RegionInfo, ...] = ()
    kept_back: int = 0
    decoder: DecoderVerdict | None = None


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Limits on a plan; None: no limit."""

    max_cpu_nodes: int | None = None
    max_buffer_nodes: int | None = None
    max_copies: int | None = None
    max_memory_mib: int | None = None
    max_time_ms: float | None = None

    def broken_by(self, verdict: Verdict) -> tuple[str, ...]:
        """Return a sentence for each limit that is broken, in the order of the fields."""
        found = (_CHECKS[field.name](self, verdict) for field in fields(self))
        return tuple(sentence for sentence in found if sentence)


def _too_many(
    option: str, noun: str, wanted: Callable[[NodeVerdict], bool]
) -> Callable[[Policy, Verdict], str]:
    def check(policy: Policy, verdict: Verdict) -> str:
        limit = getattr(policy, option)
        found = [node.tensor for node in verdict.nodes if wanted(node)]
        if limit is None or len(found) <= limit:
            return ""
        names = list_first(found, between=", ")
        return f"{len(found)} {noun}, {_flag(option)} allows {limit}: {names}"

    return check


def _too_much_memory(policy: Policy, verdict: Verdict) -> str:
    limit, plan = policy.max_memory_mib, verdict.memory.plan
    if limit is None or plan.peak_bytes <= limit * MIB:
        return ""
    return (
        f"{plan.peak_bytes / MIB:.1f} MiB of GPU memory, --limit memory-mib allows {limit}: "
        f"{plan.param_bytes / MIB:.1f} MiB constants, {plan.slot_bytes / MIB:.1f} MiB for "
        f"intermediate tensors (most are alive at {verdict.memory.live_tensor})"
    )


def _too_slow(policy: Policy, verdict: Verdict) -> str:
    """Return why the floor of the time breaks its limit: one that lacks a rate keeps none."""
    limit, time_us = policy.max_time_ms, verdict.totals.time_us
    if limit is None:
        return ""
    if time_us is not None and time_us > limit * 1000:
        slowest = max(verdict.nodes, key=lambda node: node.time_us or 0.0)
        return (
            f"at least {time_us / 1000:.3g} ms, --limit time-ms allows {limit:g}: the longest is "
            f"{(slowest.time_us or 0.0) / 1000:.3g} ms at {slowest.tensor} ({slowest.bound})"
        )
    if time_us is not None and not verdict.unknown_rates:
        return ""
    missing = ", ".join(key.removeprefix("performance.") for key in verdict.unknown_rates)
    known = "" if time_us is None else f" beyond {time_us / 1000:.3g} ms"
    return (
        f"--limit time-ms cannot be held: the time is not known{known}, as no source gives "
        f"{missing or 'rates'} of {verdict.target}; name a GPU whose rates are known, or measure "
        "yours by adrenoc device calibrate"
    )


def _flag(option: str) -> str:
    return "--limit " + option.removeprefix("max_").replace("_", "-")


_CHECKS = {
    "max_cpu_nodes": _too_many("max_cpu_nodes", "nodes on the CPU", lambda n: n.place == "cpu"),
    "max_buffer_nodes": _too_many(
        "max_buffer_nodes", "nodes that write to a buffer", lambda n: n.is_off_texture
    ),
    "max_copies": _too_many("max_copies", "nodes that only move data", lambda n: n.is_copy),
    "max_memory_mib": _too_much_memory,
    "max_time_ms": _too_slow,
}
