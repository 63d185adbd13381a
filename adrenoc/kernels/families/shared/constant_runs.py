"""Constants that are one run of vectors of four, which a work-group brings to local memory.

They lie as texels, in rows that a work-group reads whole, or in a flat buffer.  Texels come through
the cache that has the activations too, by coordinates in place of addresses, and what waits for
them waits half as long as for a buffer.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from adrenoc.base.tvmapi import Expr, floordiv, floormod, iconst, load_vector
from adrenoc.ir.program import Matrix
from adrenoc.kernels.access import Access, BlockedAccess
from adrenoc.kernels.builder import KernelBuilder
from adrenoc.kernels.families.shared.context import NodeKernel, Pack
from adrenoc.kernels.families.shared.conv_work import ConvWork
from adrenoc.kernels.families.shared.machine import Machine
from adrenoc.kernels.weights import fill_rows


def has_texel_weights(work: ConvWork, machine: Machine) -> bool:
    """Return whether weights are read as texels: then a thread never waits for a buffer.

    Beside bytes, and beside an image that lies in a buffer, it would have to.
    """
    return work.textures and machine.texel_weights and work.image is None and not work.words


def declare_run(
    kernel: NodeKernel,
    name: str,
    kind: str,
    pack: Pack,
    prepare: Pack = np.asarray,
    *,
    dtype: str | None = None,
    transform: Matrix | None = None,
    texels: bool,
) -> Access:
    """Declare a constant that `pack` makes a flat run, as the next argument; `load_run` reads it.

    `prepare` and `transform` are as in `RuleContext.pack_constant`; `dtype` is
    that of the elements if not that of all storage.  Halves of a flat buffer lie as 32-bit words,
    two in each.
    """
    if not texels:
        return kernel.flat(name, kind, lambda v: _view_words(pack(v)), prepare, dtype, transform)
    rows = partial(fill_rows, most_rows=kernel.context.limits.image2d_max_height_texels)
    kind = f"{kind}_texels"
    return kernel.pack_constant(name, kind, lambda v: rows(pack(v)), prepare, transform, dtype)


def is_texels(run: Access) -> bool:
    """Return whether a run has rows of texels, so that a load gives one vector whatever the
    dtype."""
    return isinstance(run, BlockedAccess)


def load_run(builder: KernelBuilder, run: Access, first: Expr, offset: int, kind: str) -> Expr:
    """Load `first + offset` of a run: a texel, or 16 bytes of words, or four numbers.

    What lies flat is loaded as `kind`; a texel is of the dtype of the arithmetic.
    """
    if not is_texels(run):
        return load_vector(run.buffer, first, offset, kind)
    at, width = first + iconst(offset), run.extents.w
    return run.texel(iconst(0), iconst(0), floordiv(at, width), floormod(at, width))


def _view_words(run: np.ndarray) -> np.ndarray:
    """Halves as 32-bit words; other numbers as they are."""
    return run.view(np.uint32) if run.dtype == np.float16 else run
