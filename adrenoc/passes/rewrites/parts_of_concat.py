"""Slices of concatenations, as the parts that they hold."""

from __future__ import annotations

from tvm import relax

from adrenoc.importers.relax.fold import slice_bounds
from adrenoc.importers.relax.values import static_shape


def parts_within(call: relax.Call, joined: relax.Call) -> list[relax.Expr]:
    """Return the parts of the concatenation `joined` that the slice `call` of it with step 1 is
    made of.

    They are whole, or it is one slice of one part; none where the slice cuts several axes, or
    more than one part.
    """
    shape, axis = static_shape(call.args[0]), int(joined.attrs.axis)
    fields = joined.args[0].fields if isinstance(joined.args[0], relax.Tuple) else []
    extents = [static_shape(field) for field in fields]
    if shape is None or None in extents:
        return []
    axis %= len(shape)
    begin, end = 0, shape[axis]
    for cut, low, high in zip(*slice_bounds(call)[:3], strict=True):
        bounds_of_cut = slice(low, high).indices(shape[cut])[:2]
        if cut % len(shape) == axis:
            begin, end = bounds_of_cut
        elif bounds_of_cut != (0, shape[cut]):
            return []
    parts: list[relax.Expr] = []
    first, bounds = 0, []
    for field, extent in zip(fields, extents, strict=True):
        last = first + (extent or shape)[axis]
        if begin < last and first < end:
            parts.append(field)
            bounds.append((first, last))
        first = last
    if not parts or (bounds[0][0], bounds[-1][1]) == (begin, end):
        return parts
    if len(parts) > 1:
        return []
    offset = bounds[0][0]
    return [relax.op.strided_slice(parts[0], [axis], [begin - offset], [end - offset])]
