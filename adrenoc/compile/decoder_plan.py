"""What to compile of a decoder: one token and some lengths of prompts, over caches of N rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from adrenoc.base.decision import Decision
from adrenoc.base.errors import OptionError
from adrenoc.bundle.decoder_names import MASK, POSITIONS, TOKENS
from adrenoc.importers.decoder_form import MAKERS_CONFIG
from adrenoc.importers.decoder_spec import GENAI_CONFIG, DecoderForm
from adrenoc.ir.options import Shapes

MOST_ROWS = 4096
"""The most rows of a cache that nobody asked for: what longer contexts take of a phone has to be
meant."""
USUAL_ROWS = 2048
"""Where nothing says how long the context is."""
_LEAST_SLACK = 16
"""Rows of a cache of a window beyond it: more than steps are ever made ahead."""
USUAL_PREFILL = (16, 128)
"""Tokens of a prompt that one run takes."""


@dataclass(frozen=True, kw_only=True)
class DecoderPlan:
    """A bucket for each number of tokens, the fewest first; the caches that they share.

    After one of `ends` the model has no more to say.  `slack` is how many rows caches of a window
    hold beyond it, 0 where all hold every row.
    """

    buckets: tuple[Shapes, ...]
    caches: tuple[tuple[str, str], ...]
    recurrent: tuple[tuple[str, str], ...] = ()
    slack: int = 0
    ends: tuple[int, ...] = ()
    decisions: tuple[Decision, ...]


def plan_decoder(
    form: DecoderForm, context: int | None, prefill: Sequence[int], *, whole: bool = False
) -> DecoderPlan:
    """Plan a decoder's buckets for caches of `context` rows, or as many as its makers say.

    Those of a window hold the last rows alone, but where `whole` ones are asked for.

    Raises:
        OptionError: a prompt's length is beyond the context.
    """
    rows, reason = _choose_rows(form, context)
    if form.single:
        prefill = _choose_single(prefill)
    elif form.lengths:
        prefill = _choose_lengths(form, prefill, rows)
    long = [length for length in prefill if length > rows]
    if long and context is not None and tuple(prefill) != USUAL_PREFILL:
        raise OptionError(
            f"--prefill {long[0]} takes more tokens than the context's {rows} rows, expected at "
            "most as many",
            hint=f"adrenoc compile MODEL --context {long[0]} --prefill {long[0]}",
        )
    lengths = sorted({1, *(length for length in prefill if length <= rows)})
    decisions = [_tell_context(form, rows, reason)]
    decisions.append(
        Decision(
            subject="prefill",
            taken=f"runs of {', '.join(map(str, lengths))} tokens",
            reason="the file takes one token a run"
            if form.single
            else "prompts go through the longest that they fill, their rest through the "
            "shortest that holds it, or through the one before it where runs of that are at most "
            "half as long; the last token through that of one",
        )
    )
    slack = 0 if whole else _choose_slack(form, rows, lengths[-1])
    if slack:
        decisions.append(_tell_windows(form, rows, slack))
    return DecoderPlan(
        buckets=tuple(_shapes(form, length, rows, slack) for length in lengths),
        caches=tuple((cache.past, cache.present) for cache in form.caches),
        recurrent=tuple((state.past, state.present) for state in form.recurrent),
        slack=slack,
        ends=form.ends,
        decisions=tuple(decisions),
    )


def _tell_context(form: DecoderForm, rows: int, reason: str) -> Decision:
    if form.caches or form.masked:
        return Decision(subject="context", taken=f"{rows} rows", reason=reason)
    return Decision(
        subject="context", taken="no end", reason="no state of the model grows with the tokens"
    )


def _tell_windows(form: DecoderForm, rows: int, slack: int) -> Decision:
    windows = [cache.least for cache in form.caches if cache.least]
    return Decision(
        subject=f"{len(windows)} caches of a window",
        taken=f"hold the last {max(windows) + slack} rows of {rows}",
        reason=f"no token sees more than {max(windows)}; {slack} more are those of one run, and "
        "what may be rewound without taking tokens in again",
    )


def _choose_single(prefill: Sequence[int]) -> tuple[int, ...]:
    """No runs of several tokens: the file has none, and prompts go through it token by token."""
    if tuple(prefill) != USUAL_PREFILL and set(prefill) - {1}:
        raise OptionError(
            f"--prefill {','.join(map(str, prefill))}: a run of the file takes one token, expected "
            "--prefill 1 or none",
            hint="adrenoc compile MODEL takes prompts in token by token; a file whose `input_ids` "
            "leave the number of tokens open can take many at once",
        )
    return ()


def _choose_lengths(form: DecoderForm, prefill: Sequence[int], rows: int) -> tuple[int, ...]:
    """Of the lengths that the file has those that were asked for, or that come near the usual."""
    if tuple(prefill) != USUAL_PREFILL:
        unknown = [length for length in prefill if length not in (1, *form.lengths)]
        if unknown:
            known = ",".join(map(str, form.lengths))
            raise OptionError(
                f"--prefill {unknown[0]}: the file has no signature of so many tokens, expected "
                f"some of {known}",
                hint=f"adrenoc compile MODEL --prefill {known}",
            )
        return tuple(prefill)
    there = [length for length in form.lengths if length <= rows]
    near = {min((n for n in there if n >= usual), default=max(there, default=1))
            for usual in USUAL_PREFILL}  # fmt: skip
    return tuple(sorted(near))


def _choose_rows(form: DecoderForm, context: int | None) -> tuple[int, str]:
    if form.rows:
        return _choose_fixed_rows(form.rows, context)
    if context is not None:
        return context, "--context"
    if not form.context:
        why = f"no {GENAI_CONFIG} or {MAKERS_CONFIG} beside the model says more; --context N does"
        return USUAL_ROWS, why
    if form.context <= MOST_ROWS:
        return form.context, f"{form.source} says so"
    return (MOST_ROWS, f"{form.source} says {form.context}, which --context N has to ask for")


def _choose_fixed_rows(rows: int, context: int | None) -> tuple[int, str]:
    if context is None:
        if rows <= MOST_ROWS:
            return rows, "the caches of the file have so many"
        return MOST_ROWS, f"the caches of the file have {rows}, which --context N has to ask for"
    if context > rows:
        raise OptionError(
            f"--context {context}: the caches of the file have {rows} rows, expected at most as "
            "many",
            hint=f"adrenoc compile MODEL --context {rows}",
        )
    return context, "--context"


def _choose_slack(form: DecoderForm, rows: int, longest: int) -> int:
    """Rows that caches of a window hold beyond it: those of a run, and of steps made ahead.

    0 where that would be no fewer than all.
    """
    slack = max(longest, _LEAST_SLACK)
    windows = [cache.least for cache in form.caches if cache.least]
    return slack if form.slides and max(windows) + slack < rows else 0


def _shapes(form: DecoderForm, tokens: int, rows: int, slack: int) -> Shapes:
    shapes: list[tuple[str, tuple[int, ...]]] = [(TOKENS, (1, tokens))]
    if form.masked:
        shapes.append((MASK, (1, rows)))
    if form.positions:
        streams = (form.streams,) if form.streams > 1 else ()
        shapes.append((POSITIONS, (*streams, 1, tokens)))
    for cache in form.caches:
        held = cache.least + slack if cache.least and slack else rows
        shapes.append((cache.past, (1, cache.heads, held, cache.head)))
    shapes += [(state.past, state.shape) for state in form.recurrent]
    return tuple(shapes)
