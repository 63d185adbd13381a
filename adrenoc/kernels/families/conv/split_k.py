"""Threads of a work-group that share a sum: each has made a split of it."""

from __future__ import annotations

from adrenoc.base.tvmapi import Expr, iconst
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.statements import Registers, SharedArray


def vectors_added(count: int, split_k: int, threads: int) -> int:
    """Vectors of local memory that `add_split_k` needs, of `count` sums a thread."""
    return split_k // 2 * (threads // split_k) * count


def add_split_k(
    builder: KernelBuilder,
    sums: Registers,
    count: int,
    shared: SharedArray,
    part: tuple[Expr, int],
    thread: Expr,
    threads: int,
) -> None:
    """Add the sums of all splits, in the threads of split 0; no thread may still read `shared`.

    `part` is the thread's split and how many there are, a power of two; the `threads` of a split
    follow each other.  A tree, where each step adds one half to the other, keeps few numbers in
    registers; adding all splits at once keeps all of them.
    """
    own, split_k = part
    reach = split_k // 2
    while reach:
        width = reach * (threads // split_k)
        giver = thread - iconst(width)
        with builder.when((own >= iconst(reach)) & (own < iconst(2 * reach))):
            for at in range(count):
                shared[giver + iconst(at * width)] = sums[at]
        builder.barrier()
        with builder.when(own < iconst(reach)):
            for at in range(count):
                sums[at] = sums[at] + shared[thread + iconst(at * width)]
        reach //= 2
        if reach:
            builder.barrier()
