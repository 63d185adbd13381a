"""Weights that the threads of a work-group bring to local memory together."""

from __future__ import annotations

from adrenoc.base.tvmapi import Expr, iconst, minimum
from adrenoc.ir.layout import LANES
from adrenoc.kernels.access import Access
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.families.shared.constant_runs import is_texels, load_run
from adrenoc.kernels.families.shared.conv_weights import HALVES_A_LOAD
from adrenoc.kernels.statements import SharedArray


def vectors_a_load(*, half: bool, texels: bool = False) -> int:
    """Vectors of four that a load gives: a texel, 16 bytes of halves, or four numbers."""
    return HALVES_A_LOAD // LANES if half and not texels else 1


def vectors_held(vectors: int, threads: int, *, half: bool, texels: bool = False) -> int:
    """Vectors of the array that so many weights are brought to.

    Every thread stores what it loads, in the last round too: a test would wait.
    """
    of_a_round = threads * vectors_a_load(half=half, texels=texels)
    return -(-vectors // of_a_round) * of_a_round


def bring_weights(
    builder: KernelBuilder,
    weight: Access,
    first: Expr,
    loads: int,
    thread: Expr,
    threads: int,
    shared: SharedArray,
    *,
    at: int = 0,
    at_once: int | None = None,
) -> None:
    """Bring so many loads, from load `first` on, to `shared` from vector `at` on.

    Neighbours load neighbours; `shared` has room for `vectors_held`.  A thread asks for `at_once`
    loads, or for all, before it waits.
    """
    per_load = vectors_a_load(half=builder.compute == "float16", texels=is_texels(weight))
    mine = builder.let(first + thread, "load")
    starts = list(range(0, loads, threads))
    step = at_once or max(len(starts), 1)
    for run in range(0, len(starts), step):
        waiting = []
        for done in starts[run : run + step]:
            place, left = mine, loads - done
            if left < threads:
                place = first + minimum(thread, iconst(left - 1))
            word = load_run(builder, weight, place, done, builder.compute)
            waiting.append((done, builder.let(word, "w")))
        for done, words in waiting:
            to = thread + iconst(done + at // per_load)
            if per_load > 1:
                shared.put_words(to, words)
            else:
                shared[to] = words
