"""What `compile` takes a model for: shapes and ranges of them, states, and a decoder's context and
prompts. `NAME:1..8,3,224..512/96` holds ranges, for each choice of which a bucket is compiled:

    8            this extent
    1..8         doubled from the first to the last: 1, 2, 4, 8
    224..512/96  by steps, and the last: 224, 320, 416, 512
    1|4|6        these extents
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from adrenoc.base.decision import Decision
from adrenoc.base.errors import OptionError, ShapeError
from adrenoc.cli.model_params import parse_numbers
from adrenoc.importers.signature import AS_IT_IS, Entry
from adrenoc.ir.options import Shapes, is_extent, parse_shape

MOST_BUCKETS = 32
"""Each is compiled and linked by itself."""

_RANGE = re.compile(r"([0-9]{1,10})\.\.([0-9]+)(?:/([0-9]{1,10}))?")
_HINT = "adrenoc compile MODEL --shape input:1..8,3,224..512/96,224..512/96"


@dataclass(frozen=True, kw_only=True)
class ShapeRange:
    """The extents that each dimension of an input can have, ascending, and how they were written.
    Ranges that are written alike at the same axis of several inputs vary together: a batch, or the
    length of a sentence and of its mask."""

    name: str
    extents: tuple[tuple[int, ...], ...]
    texts: tuple[str, ...]


def parse_shape_or_range(text: str) -> tuple[str, tuple[int, ...]] | ShapeRange:
    """Read `NAME:D,D,...` of the command line, where a D may be a range. Raises ShapeError where it
    has another form, or a range is empty."""
    name, _, dims = text.rpartition(":")
    texts = tuple(part.strip() for part in dims.split(","))
    if not any(mark in part for part in texts for mark in ("..", "|")):
        return parse_shape(text)
    if not name:
        raise ShapeError(f'--shape "{text}": expected NAME:D,D,...', hint=_HINT)
    extents = tuple(_extents(part, text) for part in texts)
    return ShapeRange(name=name, extents=extents, texts=texts)


def _extents(part: str, text: str) -> tuple[int, ...]:
    found = _RANGE.fullmatch(part)
    if is_extent(part) and int(part):
        return (int(part),)
    numbers = part.split("|")
    if len(numbers) > 1 and all(map(is_extent, numbers)):
        extents = {int(number) for number in numbers}
    elif found is not None and is_extent(found[2]) and found[3] != "0":
        first, last, step = (int(v) if v else 0 for v in found.groups())
        extents = {first, last}
        at = first
        while 0 < at < last and len(extents) <= MOST_BUCKETS:
            extents.add(at)
            at = at + step if step else at * 2
        if first > last:
            extents = {0}
    else:
        extents = {0}
    if min(extents) < 1:
        raise ShapeError(
            f'--shape "{text}": "{part}" is no extent; expected 8, 1..8, 64..256/64 or 1|4|8, from '
            "1 on and ascending",
            hint=_HINT,
        )
    return tuple(sorted(extents))


def buckets_of(ranges: Sequence[tuple[str, tuple[int, ...]] | ShapeRange]) -> tuple[Shapes, ...]:
    """Return all choices of extents, the one with the most elements last. Raises ShapeError where
    there are more than `MOST_BUCKETS`."""
    keys: dict[tuple[int, str], tuple[int, ...]] = {}
    for one in ranges:
        if isinstance(one, ShapeRange):
            numbered = enumerate(zip(one.texts, one.extents, strict=True))
            keys.update({(a, t): e for a, (t, e) in numbered if len(e) > 1})
    count = math.prod(len(extents) for extents in keys.values())
    if count > MOST_BUCKETS:
        raise ShapeError(
            f"the ranges of --shape make {count} buckets; expected up to {MOST_BUCKETS}",
            hint="larger steps, or a list of the extents that you need: 1|8",
        )
    buckets = []
    for choice in itertools.product(*keys.values()):
        chosen = dict(zip(keys, choice, strict=True))
        buckets.append(tuple(_shape_of(one, chosen) for one in ranges))
    return tuple(sorted(buckets, key=_elements))


def _shape_of(
    one: tuple[str, tuple[int, ...]] | ShapeRange, chosen: dict[tuple[int, str], int]
) -> tuple[str, tuple[int, ...]]:
    if not isinstance(one, ShapeRange):
        return one
    numbered = enumerate(zip(one.texts, one.extents, strict=True))
    return one.name, tuple(chosen.get((a, t), e[0]) for a, (t, e) in numbered)


def _elements(bucket: Shapes) -> tuple[int, Shapes]:
    return sum(math.prod(dims) for _, dims in bucket), bucket


if TYPE_CHECKING:
    from adrenoc.importers.signature import Signature
    from adrenoc.importers.states import DecoderForm

    AskedShapes = Sequence[tuple[str, tuple[int, ...]] | ShapeRange]

_Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class ShapePlan:
    """The choices of input shapes, the largest last, and what is kept from run to run. `tokens` are
    those that end a decoder's text or never come, `words` its tokenizer.json and chat.json."""

    buckets: tuple[Shapes, ...]
    states: _Pairs = ()
    caches: _Pairs = ()
    recurrent: _Pairs = ()
    slack: int = 0
    tokens: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    words: Mapping[str, bytes] = field(default_factory=dict)
    decisions: tuple[Decision, ...] = ()
    entry: Entry = AS_IT_IS

    def options_of(self, bucket: Shapes) -> dict[str, Any]:
        """Return what options say of a choice of shapes and of what is kept; None is left open."""
        return {
            "shapes": bucket or None,
            "states": self.states or None,
            "caches": self.caches or None,
            "recurrent": self.recurrent or None,
            "slack": self.slack or None,
            **{name: some or None for name, some in self.tokens.items()},
            **self.entry.options(),
        }


def plan_shapes(
    model: Path,
    shapes: AskedShapes,
    decoding: tuple[int | None, str | None],
    kept: Sequence[str],
    *,
    accurate: bool,
    entry: Entry = AS_IT_IS,
    tokenizer: Path | None = None,
) -> ShapePlan:
    """Plan the shapes of `--shape`, or of a decoder whose past grows; states of `--state`.

    `decoding` are `--context` and `--prefill`, `tokenizer` is `--tokenizer`. Raises
    click.UsageError for options that do not go together, OptionError for a state that the model
    does not have.
    """
    from adrenoc.bundle.chat import EMBEDDINGS, TOKENS
    from adrenoc.compile.decoder_plan import USUAL_PREFILL, find_words, plan_decoder
    from adrenoc.importers.decoder_form import find_decoder
    from adrenoc.importers.signature import read_signature

    context, prefill = decoding
    signature = read_signature(model, entry.signature)
    as_it_is = EMBEDDINGS in {one[0] for one in shapes if isinstance(one, tuple)}
    leaves = kept or entry.leaves_decoder or as_it_is
    form = None if leaves else find_decoder(model, signature)
    signature = signature.leave_out(name for name, _ in entry.fixed)
    more = None if form is None else _shapes_of_others(form, shapes)
    if form is None or more is None:
        if context is not None or prefill is not None:
            raise click.UsageError(
                "--context and --prefill are for decoders with past and present keys and values, "
                "without --shape and --state"
            )
        takes_text = TOKENS in {one.name for one in signature.inputs}
        if tokenizer is not None and not takes_text:
            raise click.UsageError(f"--tokenizer is for models that take tokens, as {TOKENS}")
        buckets = tuple(buckets_of(shapes))
        states, decisions = _plan_states(signature, buckets, kept, accurate=accurate)
        words, found = find_words(model, tokenizer) if takes_text else ({}, ())
        return ShapePlan(
            buckets=buckets, states=states, words=words, decisions=(*decisions, *found), entry=entry
        )
    if accurate:
        raise click.UsageError("--accuracy is for models without caches")
    _refuse_streams(form, more)
    lengths: tuple[int, ...] = USUAL_PREFILL
    if prefill is not None:
        lengths = parse_numbers(prefill, "lengths, such as 16,128", least=1)
    plan = plan_decoder(form, context, lengths)
    words, found = find_words(model, tokenizer)
    buckets = tuple((*bucket, *more) for bucket in plan.buckets)
    # Of the other format the importer knows all that is a state.
    known = (*plan.caches, *plan.recurrent)
    others = () if form.lengths else _tell_other_states(signature, buckets[0], known)
    return ShapePlan(
        buckets=buckets,
        caches=plan.caches,
        recurrent=plan.recurrent,
        slack=plan.slack,
        tokens=plan.tokens,
        words=words,
        decisions=(*plan.decisions, *found, *others),
        entry=entry,
    )


def _refuse_streams(form: DecoderForm, others: Shapes) -> None:
    """Refuse pictures of a model that counts their height and width in positions (Qwen2-VL's).
    Raises OptionError where it does."""
    from adrenoc.bundle.chat import IMAGE_ROWS

    if form.streams > 1 and IMAGE_ROWS in dict(others):
        raise OptionError(
            f"--shape {IMAGE_ROWS}: the model counts {form.streams} positions a token (time, "
            "height, width), which differ in a picture; adrenoc counts them alike, as in a text",
            hint=f"leave --shape {IMAGE_ROWS} out: text alone goes through it",
        )


def _tell_other_states(signature: Signature, shapes: Shapes, kept: _Pairs) -> tuple[Decision, ...]:
    """Tell what else a decoder keeps by its exporter's names: its rows cannot be gone back to."""
    from adrenoc.importers.states import find_states

    return tuple(
        Decision(
            subject=f"{past}, {present}",
            taken="taken and given at each run",
            reason="an exporter's names say that it is a state, and the file leaves its extents "
            "open; adrenoc run --input gives it for one step",
        )
        for past, present in (
            pair for found in find_states(signature, dict(shapes)) for pair in found
        )
        if (past, present) not in kept
    )


def _shapes_of_others(form: DecoderForm, shapes: AskedShapes) -> Shapes | None:
    """Return shapes of inputs beside tokens and caches; None where others are asked for."""
    from adrenoc.bundle.chat import MASK, POSITIONS, TOKENS

    pasts = [*(one.past for one in form.caches), *(one.past for one in form.recurrent)]
    own = {TOKENS, MASK, POSITIONS, *pasts}
    plain = tuple(one for one in shapes if isinstance(one, tuple))
    if len(plain) < len(shapes) or own.intersection(name for name, _ in plain):
        return None
    return plain


def _plan_states(
    signature: Signature, buckets: Sequence[Shapes], kept: Sequence[str], *, accurate: bool
) -> tuple[_Pairs, tuple[Decision, ...]]:
    """Return the states that were asked for, or that names tell; of these the decisions say so."""
    from adrenoc.importers.signature import UNKNOWN
    from adrenoc.importers.states import NO_STATES, expand_states, find_states, parse_state

    if NO_STATES in kept:
        if len(kept) > 1:
            raise click.UsageError(f"--state {NO_STATES} keeps nothing: no other --state")
        return (), ()
    if kept:
        if len(buckets) > 1:
            raise click.UsageError("--state is for one choice of shapes: no ranges with --shape")
        if accurate:
            raise click.UsageError("--accuracy is for models without states: --state none")
        asked = [parse_state(text) for text in kept]
        expanded = () if signature is UNKNOWN else expand_states(asked, signature)
        more = (pair for pair in signature.variables if pair not in expanded)
        return (*expanded, *more), ()
    if signature.variables and (accurate or len(buckets) > 1):
        what = "--accuracy" if accurate else "a range of shapes"
        raise click.UsageError(f"{what} is for models without variables: --state none")
    if accurate or len(buckets) > 1:
        return (), ()
    found, unlike = find_states(signature, dict(buckets[0]))
    found = tuple(pair for pair in found if pair not in signature.variables)
    told = [
        (
            signature.variables,
            "kept from run to run, in one memory",
            "the file keeps it in a variable; what lies there is how far it is from its first "
            "value, and --state none takes and gives that at each run",
        ),
        (
            found,
            "kept from run to run, in one memory",
            "an exporter's names say so, and both are of one shape and dtype; --state none takes "
            "and gives them at each run",
        ),
        (
            unlike,
            "taken and given at each run",
            "an exporter's names say that they are a state, and the file does not say that both "
            "are of one shape and dtype; --state PAST=PRESENT keeps it",
        ),
    ]
    decisions = tuple(
        Decision(subject=f"{past}, {present}", taken=taken, reason=reason)
        for pairs, taken, reason in told
        for past, present in pairs
    )
    return (*signature.variables, *found), decisions
