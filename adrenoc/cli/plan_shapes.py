"""What `compile` takes a model for: shapes, states, and a decoder's context and prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from adrenoc.base.decision import Decision
from adrenoc.base.errors import OptionError
from adrenoc.cli.model_params import parse_numbers
from adrenoc.importers.signature import AS_IT_IS, Entry

if TYPE_CHECKING:
    from adrenoc.cli.shape_ranges import ShapeRange
    from adrenoc.importers.signature import Signature
    from adrenoc.importers.states import DecoderForm
    from adrenoc.ir.options import Shapes

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
    click.UsageError for options that do not go together, OptionError where a state that the model
    does not have.
    """
    from adrenoc.bundle.decoder_names import EMBEDDINGS, TOKENS
    from adrenoc.cli.shape_ranges import buckets_of
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
            buckets=buckets,
            states=states,
            words=words,
            decisions=(*decisions, *found),
            entry=entry,
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
    from adrenoc.bundle.decoder_names import IMAGE_ROWS

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
    from adrenoc.bundle.decoder_names import MASK, POSITIONS, TOKENS

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
