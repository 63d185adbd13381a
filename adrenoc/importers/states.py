"""Which outputs of a model are inputs of its next run: states, which a bundle keeps.

They are named by whoever compiles (`--state past=present`, with a `*` for many), or found where an
exporter's names say so and both are of one shape and dtype.

What a decoder keeps from token to token: its caches, its recurrent states, and their form.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from adrenoc.base.errors import OptionError
from adrenoc.base.text.spelling import did_you_mean, list_names
from adrenoc.bundle.manifest import TensorSpec
from adrenoc.importers.signature import Extent, Port, Signature

GENAI_CONFIG = "genai_config.json"
"""What onnxruntime-genai's builder writes beside a model."""


@dataclass(frozen=True, kw_only=True)
class CacheSpec:
    """A cache of keys or values: its input, its output, heads and elements of a row of a head.

    `least` is how many rows the file wants one to have that holds none yet, as those that slide do.
    """

    past: str
    present: str
    heads: int
    head: int
    dtype: str
    least: int = 0


@dataclass(frozen=True, kw_only=True)
class StateSpec:
    """A state that every token changes as a whole, as those of recurrent layers."""

    past: str
    present: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, kw_only=True)
class DecoderForm:
    """Caches of a decoder and its recurrent states, and what its configuration says of it.

    `context` (as the file `source` says) is 0 and `tokens` are none where no configuration lies
    beside the model: those after which it has no more to say, and those that it does not make, by
    the names of `CompileOptions`.  Where the file fixes them, `rows` are those that its caches have
    and `lengths` the tokens of a prompt that it has calls for. `slides` says that caches of a
    window may have fewer rows than others.  `merged` is of files with a graph for a first call
    beside that for a past; `single` of those whose runs take one token.  `streams` is how many
    positions a token has where there are more than one."""

    caches: tuple[CacheSpec, ...]
    recurrent: tuple[StateSpec, ...] = ()
    slides: bool = False
    masked: bool
    positions: bool
    streams: int = 1
    context: int
    merged: bool = False
    single: bool = False
    tokens: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    source: str = GENAI_CONFIG
    rows: int = 0
    lengths: tuple[int, ...] = ()


State = tuple[str, str]
"""An input, and the output that it is in the next run."""

NO_STATES = "none"
"""What `--state` takes where nothing is to be kept."""

_ANY = "*"
_SAYS_STATE = re.compile(
    r"(?<![a-z])(states?|caches?|cached|past|hidden|mem|memory|history|rnn|gru|lstm|ctx|context)"
    r"(?![a-z])|^[hc]\d*$|^r\d+i$"
)
"""Names of inputs that are states, where all that tells the output's from it is in or out."""
_NEXT = ("new_{}", "next_{}", "updated_{}", "r_{}", "{}_next", "{}_new", "{}_updated")
"""Names that say of any input that they are what follows it."""
_OUT = ("{}_out", "out_{}", "{}_output", "output_{}", "{}n", "{}N", "{}_n")
"""Names that say it of one whose own name says that it is a state."""
_RENAMED = (
    (r"past_key_values", "present"),
    (r"past", "present"),
    (r"(?<![a-z])in(put)?(?![a-z])", "out"),
    (r"(?<![a-z])input(?![a-z])", "output"),
    (r"(?<![a-z])(prev|previous|initial|last)(?![a-z])", "next"),
    (r"(?<![a-z])(prev|previous|initial|last)_|_(prev|previous|initial|last)(?![a-z])", ""),
    (r"^([hc])_?0$", r"\1n"),
    (r"^([hc])_?0$", r"\1_n"),
    (r"^(r\d+)i$", r"\1o"),
)
"""How exporters make the name of such an output of that of an input."""


def parse_state(text: str) -> State:
    """Read `past=present`. Raises OptionError where it is of another form."""
    past, equals, present = (part.strip() for part in text.partition("="))
    stars = (past.count(_ANY), present.count(_ANY))
    if not past or not equals or not present or stars not in ((0, 0), (1, 1)):
        raise OptionError(
            f"--state {text} is no pair of an input and an output, each with at most one {_ANY}; "
            "expected PAST=PRESENT",
            hint="adrenoc compile MODEL --state h0=hn --state 'cache_*=new_cache_*'",
        )
    return past, present


def expand_states(asked: Sequence[State], signature: Signature) -> tuple[State, ...]:
    """Return the pairs that `asked` names, in the order of the inputs where a `*` stands for many.
    Raises OptionError where the model has no such input or output."""
    inputs = [port.name for port in signature.inputs]
    outputs = [port.name for port in signature.outputs]
    found = [pair for one in asked for pair in _expand(one, inputs, outputs)]
    _check_names(found, inputs, outputs)
    return tuple(found)


def _expand(asked: State, inputs: Sequence[str], outputs: Sequence[str]) -> list[State]:
    past, present = asked
    if _ANY not in past:
        return [asked]
    before, after = past.split(_ANY)
    pattern = re.compile(f"{re.escape(before)}(.*){re.escape(after)}", re.DOTALL)
    matches = [(name, m[1]) for name in inputs if (m := pattern.fullmatch(name))]
    if not matches:
        raise OptionError(
            f"--state {past}={present} fits no input; the model's are {list_names(inputs)}",
            hint="adrenoc compile MODEL --state PAST=PRESENT",
        )
    missing = [
        (n, made) for n, part in matches if (made := present.replace(_ANY, part)) not in outputs
    ]
    if missing:
        raise OptionError(
            f"--state {past}={present}: the input '{missing[0][0]}' asks for the output "
            f"'{missing[0][1]}'; the model's are {list_names(outputs)}",
            hint="adrenoc compile MODEL --state PAST=PRESENT for each pair",
        )
    return [(name, present.replace(_ANY, part)) for name, part in matches]


def _check_names(states: Sequence[State], inputs: Sequence[str], outputs: Sequence[str]) -> None:
    for at, (known, what) in enumerate(((inputs, "input"), (outputs, "output"))):
        named = [pair[at] for pair in states]
        for name in named:
            if name not in known:
                raise OptionError(
                    f"--state names the {what} '{name}'{did_you_mean(name, known)}; the model's "
                    f"are {list_names(known)}",
                    hint="adrenoc compile MODEL --state PAST=PRESENT",
                )
        twice = [name for name, count in Counter(named).items() if count > 1]
        if twice:
            raise OptionError(
                f"--state names the {what} '{twice[0]}' twice; expected once: a state is one "
                "input and one output",
                hint="adrenoc compile MODEL --state PAST=PRESENT for each pair",
            )


def check_states(
    states: Sequence[State], inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> None:
    """Refuse pairs that cannot be one memory, or that leave nothing to give or to hand out. Raises
    OptionError, naming the first."""
    if not states:
        return
    taken = {spec.name: spec for spec in inputs}
    given = {spec.name: spec for spec in outputs}
    _check_names(states, list(taken), [spec.name for spec in outputs])
    for past, present in states:
        for what, seen, expected in (
            ("shape", list(given[present].shape), list(taken[past].shape)),
            ("dtype", given[present].dtype, taken[past].dtype),
        ):
            if seen != expected:
                raise OptionError(
                    f"--state {past}={present}: the output's {what} is {seen}, expected the "
                    f"input's {expected}: a state is one memory",
                    hint=f"adrenoc compile MODEL --shape {past}:D,... with the extents that the "
                    "output has, or without this --state",
                )
    if len(states) == len(outputs):
        raise OptionError(
            f"all {len(outputs)} outputs are states, so that a run would hand nothing out",
            hint="adrenoc compile MODEL with --state for fewer of them",
        )


def find_states(
    signature: Signature, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[tuple[State, ...], tuple[State, ...]]:
    """Return the states that names tell, and the pairs whose names do and whose forms are unlike.
    `shapes` fixes open axes of inputs, as `--shape` does."""
    named: dict[str, int | None] = {}
    for port in signature.inputs:
        for axis, extent in zip(port.axes or (), shapes.get(port.name, ()), strict=False):
            if isinstance(axis, str):
                named[axis] = extent
    outputs = {port.name: port for port in signature.outputs}
    found: list[State] = []
    unlike: list[State] = []
    for port in signature.inputs:
        fixed = Port(name=port.name, axes=shapes.get(port.name, port.axes), dtype=port.dtype)
        present = [name for name in names_of_next(port.name) if name in outputs]
        if not present or any(one == present[0] for _, one in [*found, *unlike]):
            continue
        alike = _are_alike(fixed, outputs[present[0]], named)
        (found if alike else unlike).append((port.name, present[0]))
    if len(found) in (len(outputs), len(signature.inputs)):  # a map of one thing to another
        return (), ()
    return tuple(found), tuple(unlike)


def is_state_name(name: str) -> bool:
    """Return whether an input's name alone says that it is a state."""
    return bool(_SAYS_STATE.search(name.lower()))


def names_of_next(name: str) -> Iterator[str]:
    """Yield what exporters call the output that is this input in the next run."""
    for form in _NEXT:
        yield form.format(name)
    if not is_state_name(name):
        return
    for form in _OUT:
        yield form.format(name)
    for old, new in _RENAMED:
        renamed = re.sub(old, new, name, count=1, flags=re.IGNORECASE)
        if renamed != name:
            yield renamed


def _are_alike(past: Port, present: Port, named: Mapping[str, int | None]) -> bool:
    """Return whether both are surely of one shape and dtype."""
    if past.axes is None or present.axes is None or past.dtype != present.dtype:
        return False

    def fix(axes: tuple[Extent, ...]) -> list[Extent]:
        return [named.get(axis, axis) if isinstance(axis, str) else axis for axis in axes]

    ours, theirs = fix(past.axes), fix(present.axes)
    return ours == theirs and None not in ours
