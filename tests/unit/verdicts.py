"""Verdicts made by hand, for tests of what is said of them."""

from typing import Any

from adrenoc.bundle.manifest import MemoryPlan
from adrenoc.check.verdict import (
    HeldConstant,
    HeldTensor,
    MemoryVerdict,
    NearMiss,
    NodeVerdict,
    SlotUse,
    Totals,
    Verdict,
)

MIB = 2**20


def node(tensor: str, *reads: str, **changed) -> NodeVerdict:
    """A convolution in a texture that takes 10 µs, except for what is `changed`."""
    values: dict[str, Any] = {
        "tensor": tensor,
        "node": f"Conv_{tensor}",
        "operators": ("conv2d", "add"),
        "kind": "compute",
        "is_output": False,
        "place": "texture",
        "reason": "",
        "layout": "NCHW4c",
        "shape": (1, 8, 4, 4),
        "dtype": "float16",
        "kernel": "conv2d_add_0",
        "reads": reads,
        "macs": 1000,
        "flops": 2100,
        "texels": 64,
        "bytes_read": 256,
        "bytes_written": 256,
        "weight_bytes": 128,
        "time_us": 10.0,
        "bound": "alu",
        "alu_us": 10.0,
        "texture_us": 4.0,
        "dram_us": 2.0,
    }
    return NodeVerdict(**{**values, **changed})


def totals(nodes: tuple[NodeVerdict, ...]) -> Totals:
    times = [n.time_us for n in nodes if n.time_us is not None]
    return Totals(
        texture_nodes=sum(n.place == "texture" for n in nodes),
        output_nodes=sum(n.is_output for n in nodes),
        buffer_nodes=sum(n.is_off_texture for n in nodes),
        cpu_nodes=sum(n.place == "cpu" for n in nodes),
        copies=sum(n.is_copy for n in nodes),
        launches=len(nodes),
        kernels=1,
        macs=sum(n.macs for n in nodes),
        flops=sum(n.flops for n in nodes),
        bytes=sum(n.bytes_read + n.bytes_written for n in nodes),
        floor_bytes=sum(n.bytes_read + n.bytes_written for n in nodes),
        time_us=sum(times) if times else None,
    )


def memory(nodes: tuple[NodeVerdict, ...]) -> MemoryVerdict:
    """Two slots in turn, 10 MiB in all."""
    held: list[list[HeldTensor]] = [[], []]
    for step, n in enumerate(nodes):
        last = min(step + 1, len(nodes) - 1)
        held[step % 2].append(HeldTensor(tensor=n.tensor, first=step, last=last, bytes=MIB))
    return MemoryVerdict(
        plan=MemoryPlan(
            slot_bytes=2 * MIB,
            param_bytes=7 * MIB,
            input_bytes=MIB // 2,
            output_bytes=MIB // 2,
            live_bytes=2 * MIB,
            peak_bytes=10 * MIB,
        ),
        live_step=1,
        live_tensor=nodes[1].tensor,
        pitched_bytes=12 * MIB,
        slots=tuple(
            SlotUse(scope="global.texture", bytes=MIB, tensors=tuple(tensors)) for tensors in held
        ),
        constants=(HeldConstant(name="const0", scope="global.texture", bytes=7 * MIB),),
    )


def verdict(nodes: tuple[NodeVerdict, ...], **changed) -> Verdict:
    values: dict[str, Any] = {
        "model": "net.onnx",
        "target": "adreno:a750",
        "target_title": "Adreno 750",
        "preset": "mixed",
        "totals": totals(nodes),
        "memory": memory(nodes),
        "near_misses": (NearMiss(subject=nodes[0].tensor, seen="close", fix="smaller"),),
        "unknown_rates": (),
        "broken": (),
        "nodes": nodes,
        "decisions": (
            {"stage": "fuse", "subject": nodes[0].tensor, "taken": "kept", "reason": "read twice"},
        ),
    }
    return Verdict(**{**values, **changed})
