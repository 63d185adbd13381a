"""How large and how small inputs may be until halves give what is no number and float32 does not.

Nobody who draws numbers knows the scale that a network was made for.  Usual numbers times each of
some scales tell by how much a bundle has room; that is told, and fails no check.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from adrenoc.check.inputs import Inputs

SCALES = (1e-3, 1e2, 1e4)
Arrays = Mapping[str, np.ndarray]


def scale_inputs(usual: Inputs) -> list[Inputs]:
    """Inputs at each of the scales; none where nothing of floats was drawn."""
    floats = [name for name in usual.drawn if usual[name].dtype.kind == "f"]
    if not floats:
        return []
    scaled = []
    for scale in SCALES:
        with np.errstate(over="ignore"):
            one = usual.add({name: usual[name] * usual[name].dtype.type(scale) for name in floats})
        scaled.append(one)
    return scaled


def tell_range(ours: Sequence[Arrays], theirs: Sequence[Arrays]) -> str:
    """Tell at which scales outputs are not finite where float32's are; one of each for a scale."""
    lost = [
        (f"{scale:g} times", name)
        for scale, made, wanted in zip(SCALES, ours, theirs, strict=True)
        for name, value in made.items()
        if name in wanted and np.isfinite(wanted[name]).all() and not np.isfinite(value).all()
    ]
    if not lost:
        return f"finite as float32 is on {SCALES[0]:g} to {SCALES[-1]:g} times the usual ones"
    scales = ", ".join(dict.fromkeys(scale for scale, _ in lost))
    return (
        f"on {scales} the usual ones `{lost[0][1]}` is not finite where float32 is "
        "(--preset fp32 holds them)"
    )
