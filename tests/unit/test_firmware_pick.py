"""Which schedule of an operator is taken, of measured ones and others, within a room."""

from adrenoc.firmware.mcu.kernel import Choice, Grounds, Room, pick


def _choice(name: str, instructions: float, scratch_bytes: int) -> Choice:
    def make() -> None:
        raise AssertionError("a choice is not made to be compared")

    actions = {"strip": name}
    how = {"instructions": instructions, "scratch_bytes": scratch_bytes}
    return Choice(actions=actions, make=make, **how)


SMALL, MIDDLE, LARGE = (
    _choice("small", 900, 100),
    _choice("middle", 500, 400),
    _choice("large", 400, 900),
)
WAY = [SMALL, MIDDLE, LARGE]


def _taken(room: int, **times_us: float) -> tuple[Choice, Grounds]:
    keys = {"small": SMALL.key, "middle": MIDDLE.key, "large": LARGE.key}
    times = {keys[name]: time for name, time in times_us.items()}
    return pick([WAY], Room(scratch_bytes=room), times)


def test_the_fastest_that_was_measured_is_taken():
    assert _taken(1000, small=9, middle=4, large=5) == (MIDDLE, Grounds.MEASURED)
    assert _taken(1000) == (LARGE, Grounds.MODELLED)
    assert _taken(50) == (SMALL, Grounds.MODELLED)


def test_a_measured_one_that_is_slow_does_not_bar_a_faster_one_that_fits():
    """The best that was measured needs too much; what else was is the slowest of all."""
    assert _taken(500, small=9, large=4) == (MIDDLE, Grounds.ESTIMATED)
    assert _taken(500, small=9) == (MIDDLE, Grounds.ESTIMATED)
    assert _taken(100, small=9, large=4) == (SMALL, Grounds.MEASURED)


def test_what_was_measured_stands_against_a_model_that_may_err():
    ways = [[SMALL, MIDDLE, _choice("near", 490, 400)]]
    taken = pick(ways, Room(scratch_bytes=500), {SMALL.key: 9, MIDDLE.key: 5})
    assert taken == (MIDDLE, Grounds.MEASURED)


def test_ways_are_not_compared_by_the_model():
    """What the second way takes of instructions says nothing about the first."""
    other = _choice("other", 10, 10)
    taken = pick([WAY, [other]], Room(scratch_bytes=1000), {LARGE.key: 4, MIDDLE.key: 5})
    assert taken == (LARGE, Grounds.MEASURED)
