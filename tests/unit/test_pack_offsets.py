"""Offsets in the pool of textures: what is alive at once lies apart, in no more than it takes."""

from hypothesis import given
from hypothesis import strategies as st

from adrenoc.passes.lower.plan_memory import Lifetime, most_alive, pack_by_offset

_SIZED = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 6), st.integers(1, 50)).map(
        lambda t: (t[0], t[0] + t[1], t[2])
    ),
    max_size=30,
)


@given(_SIZED)
def test_what_is_alive_at_once_lies_apart(sized: list[tuple[int, int, int]]) -> None:
    offsets = pack_by_offset(sized)
    assert len(offsets) == len(sized)
    for i, (first, last, held) in enumerate(sized):
        assert offsets[i] >= 0
        for j, (other_first, other_last, other_held) in enumerate(sized[:i]):
            if first <= other_last and other_first <= last:
                apart = offsets[i] >= offsets[j] + other_held or offsets[j] >= offsets[i] + held
                assert apart, (i, j, offsets)


def test_a_chain_takes_what_is_alive() -> None:
    """Each tensor is read by the next step alone: sizes that differ cost nothing."""
    sizes = [96, 24, 56, 14, 80, 7, 40, 3]
    sized = [(i, i + 1, size) for i, size in enumerate(sizes)]
    offsets = pack_by_offset(sized)
    intervals = [
        Lifetime(name=str(i), first=first, last=last, bytes=held)
        for i, (first, last, held) in enumerate(sized)
    ]
    end = max(offset + size for offset, size in zip(offsets, sizes, strict=True))
    assert end == most_alive(intervals)[0]
