"""Cases of recurrent operators."""

from tests.tflite.cases import F32, Make, Recipes, f, none, recipe, state, w

_BATCH, _STEPS, _IN, _UNITS, _OUT = 2, 3, 5, 4, 3


def recipes() -> Recipes:
    cell = [w(_UNITS, _IN), w(_UNITS, _UNITS), w(_UNITS), state(_BATCH, _UNITS)]
    relu, tanh = {"fusedActivationFunction": 1}, {"fusedActivationFunction": 4}
    yield recipe("RNN", "", [f(_BATCH, _IN), *cell], values=tanh)
    yield recipe("UNIDIRECTIONAL_SEQUENCE_RNN", "", [f(_BATCH, _STEPS, _IN), *cell], values=relu)
    yield recipe(
        "UNIDIRECTIONAL_SEQUENCE_RNN",
        "time_major",
        [f(_STEPS, _BATCH, _IN), *cell],
        values={**tanh, "timeMajor": True},
    )
    both = [f(_BATCH, _STEPS, _IN), *cell, *cell, none, none, none]
    yield recipe("BIDIRECTIONAL_SEQUENCE_RNN", "", both, [F32, F32], tanh)
    yield recipe(
        "BIDIRECTIONAL_SEQUENCE_RNN", "merged", both, [F32], {**tanh, "mergeOutputs": True}
    )
    yield from _lstms()
    memory, filters, rank = 4, 6, 2
    units = filters // rank
    svdf = [
        f(_BATCH, _IN),
        w(filters, _IN),
        w(filters, memory),
        w(units),
        state(_BATCH, memory * filters),
    ]
    yield recipe("SVDF", "", svdf, values={"rank": rank, "fusedActivationFunction": 1})


def _lstm(
    *, coupled: bool = False, peephole: bool = False, projection: bool = False, norm: bool = False
) -> tuple[list[Make], list[Make], list[Make]]:
    """The inputs of an LSTM after its data: weights, biases, projection, states, norms."""
    out = _OUT if projection else _UNITS
    skip: Make | None = none if coupled else None
    by_input = [skip or w(_UNITS, _IN), *[w(_UNITS, _IN)] * 3]
    by_state = [skip or w(_UNITS, out), *[w(_UNITS, out)] * 3]
    peep = [skip or w(_UNITS), w(_UNITS), w(_UNITS)] if peephole else [none] * 3
    biases = [skip or w(_UNITS), *[w(_UNITS)] * 3]
    project = [w(_OUT, _UNITS), w(_OUT)] if projection else [none, none]
    norms = [skip or w(_UNITS), *[w(_UNITS)] * 3] if norm else []
    states = [state(_BATCH, out), state(_BATCH, _UNITS)]
    return [*by_input, *by_state, *peep, *biases, *project], states, norms


def _lstms() -> Recipes:
    variants: dict[str, dict[str, bool]] = {
        "": {},
        "coupled": {"coupled": True},
        "peephole": {"peephole": True},
        "projection": {"projection": True, "peephole": True},
        "norm": {"norm": True},
    }
    values = {"fusedActivationFunction": 4, "cellClip": 3.0}
    for label, parts in variants.items():
        weights, states, norms = _lstm(**parts)
        yield recipe(
            "UNIDIRECTIONAL_SEQUENCE_LSTM",
            label,
            [f(_BATCH, _STEPS, _IN), *weights, *states, *norms],
            values=values,
        )
        yield recipe("LSTM", label, [f(_BATCH, _IN), *weights, *states, *norms], values=values)
    weights, states, _ = _lstm()
    yield recipe(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        "time_major",
        [f(_STEPS, _BATCH, _IN), *weights, *states],
        values={**values, "timeMajor": True},
    )
    both = [f(_BATCH, _STEPS, _IN), *weights, *weights, *states, *states, *[none] * 9]
    # With mergeOutputs LiteRT's own result differs from run to run: it reads what nobody wrote.
    yield recipe(
        "BIDIRECTIONAL_SEQUENCE_LSTM",
        "",
        both,
        [F32, F32],
        {**values, "mergeOutputs": False, "timeMajor": False},
    )
