"""Plan what to compile of a decoder: one token and some lengths of prompts, over caches of N rows.

Its bundle also carries its tokenizer.json, the tables by which a phone's runtime reads and writes
text, and how it is talked to, where that is known.  What is planned for one GPU of several stands
here, too, since that loads no TVM either.
"""

from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from adrenoc.base.decision import Decision
from adrenoc.base.errors import AdrenocError, InputError, OptionError
from adrenoc.base.files.read import open_plain
from adrenoc.base.text.json_text import read_json
from adrenoc.bundle.buckets import DEVICES_FOLDER, Edition
from adrenoc.bundle.bundle import CHAT, TEXT_TABLES, TOKENIZER
from adrenoc.bundle.chat import MASK, POSITIONS, TOKENS, ChatSettings, Sampling, parse_chat
from adrenoc.importers.containers import CONFIG, find_beside, open_tokenizer
from adrenoc.importers.decoder_form import GENERATION_CONFIG, read_chat_settings
from adrenoc.importers.formats import find_model_files
from adrenoc.importers.states import GENAI_CONFIG, DecoderForm
from adrenoc.ir.options import CompileOptions, Shapes
from adrenoc.language.tokenizer import Tokenizer
from adrenoc.target.device_set import SetMember

_MOST_CPU_S = 120
"""Processor time of making tables: vocabularies of 262,144 tokens take 6 s."""


def add_text_tables(words: Mapping[str, bytes]) -> tuple[dict[str, bytes], tuple[Decision, ...]]:
    """Return a bundle's files of text with that of tables, where its tokenizer.json allows it."""
    if TOKENIZER not in words:
        return dict(words), ()
    no_turns, sampling = "", Sampling()
    try:
        text = words[TOKENIZER].decode()
        tokenizer = Tokenizer(Path(TOKENIZER), text, most_cpu_s=_MOST_CPU_S)
        if CHAT in words:
            settings = parse_chat(words[CHAT], CHAT)
            sampling, no_turns = settings.sampling, _take_template(tokenizer, settings)
        told = tokenizer.make_tables(sampling)
    except (AdrenocError, UnicodeDecodeError) as error:
        reason = error.message if isinstance(error, AdrenocError) else str(error)
        return dict(words), (_leave_out("text on the device", reason),)
    if told["left_out"]:
        reason = f"tables do not hold {told['left_out']}"
        return dict(words), (_leave_out("text on the device", reason),)
    made = b64decode(told["tables"])
    decided = [
        Decision(
            subject="text on the device",
            taken=f"{TEXT_TABLES}, {len(made):,} bytes",
            reason="C, Java and Kotlin turn text into tokens by them",
        )
    ]
    if reason := no_turns or told["turns"]:
        decided.append(_leave_out("chats on the device", reason))
    return {**words, TEXT_TABLES: made}, tuple(decided)


def _take_template(tokenizer: Tokenizer, settings: ChatSettings) -> str:
    """Return why a template cannot be taken; "" where it is."""
    try:
        tokenizer.read_template(settings)
    except AdrenocError as error:
        return error.message
    return ""


def _leave_out(subject: str, reason: str) -> Decision:
    return Decision(subject=subject, taken="left out", reason=reason)


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
    """A bucket for each number of tokens, the fewest first; the caches that they share.  `tokens`
    are those that end a text or never come, as `DecoderForm` has them.  `slack` is how many rows
    caches of a window hold beyond it, 0 where all hold every row."""

    buckets: tuple[Shapes, ...]
    caches: tuple[tuple[str, str], ...]
    recurrent: tuple[tuple[str, str], ...] = ()
    slack: int = 0
    tokens: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    decisions: tuple[Decision, ...]


def plan_decoder(
    form: DecoderForm, context: int | None, prefill: Sequence[int], *, whole: bool = False
) -> DecoderPlan:
    """Plan a decoder's buckets for caches of `context` rows, or as many as its makers say.  Those
    of a window hold the last rows alone, but where `whole` ones are asked for."""
    rows, reason = _choose_rows(form, context)
    if form.single:
        if tuple(prefill) != USUAL_PREFILL and set(prefill) - {1}:
            raise OptionError(
                f"--prefill {','.join(map(str, prefill))}: a run of the file takes one token, "
                "expected --prefill 1 or none",
                hint="adrenoc compile MODEL takes prompts in token by token; a file whose "
                "`input_ids` leave the number of tokens open can take many at once",
            )
        prefill = ()
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
    suppressed = {t for name, some in form.tokens.items() if name != "end_tokens" for t in some}
    if suppressed:
        taken = f"{len(suppressed)} never come, or not first behind a prompt"
        said = f"{GENERATION_CONFIG} suppresses them"
        decisions.append(Decision(subject="tokens", taken=taken, reason=said))
    slack = 0 if whole else _choose_slack(form, rows, lengths[-1])
    if slack:
        decisions.append(_tell_windows(form, rows, slack))
    return DecoderPlan(
        buckets=tuple(_shapes(form, length, rows, slack) for length in lengths),
        caches=tuple((cache.past, cache.present) for cache in form.caches),
        recurrent=tuple((state.past, state.present) for state in form.recurrent),
        slack=slack,
        tokens=form.tokens,
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


def _choose_lengths(form: DecoderForm, prefill: Sequence[int], rows: int) -> tuple[int, ...]:
    """Return the lengths of the file that were asked for, or that come near the usual."""
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
        why = f"no {GENAI_CONFIG} or {CONFIG} beside the model says more; --context N does"
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
    """Rows that caches of a window hold beyond it: those of a run, and of steps made ahead.  0
    where that would be no fewer than all."""
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


@dataclass(frozen=True, kw_only=True)
class EditionPlan:
    """One GPU to compile for beside the common target, and how."""

    member: SetMember
    options: CompileOptions

    def digest(self) -> tuple[str, ...]:
        """Return all of it that can change a bundle."""
        member = self.member
        return member.target.digest(), self.options.digest(), member.gpu, member.driver

    @property
    def entry(self) -> Edition:
        """Return what the bundle says of it."""
        member = self.member
        return Edition(
            folder=f"{DEVICES_FOLDER}/{member.folder}",
            target=member.target.name,
            gpu=member.gpu,
            driver=member.driver,
        )


_HINT = "--tokenizer takes the tokenizer.json that lies beside the model"


def find_words(model: Path, asked: Path | None) -> tuple[dict[str, bytes], tuple[Decision, ...]]:
    """Return the files of a bundle that turn texts into tokens: tokenizer and chat template."""
    tokenizer, found = find_tokenizer(model, asked)
    settings, more = read_chat_settings(model, tokenizer) if tokenizer else (None, ())
    words = {TOKENIZER: tokenizer, CHAT: b"" if settings is None else settings.to_json()}
    return {name: content for name, content in words.items() if content}, (*found, *more)


def find_tokenizer(model: Path, asked: Path | None) -> tuple[bytes, tuple[Decision, ...]]:
    """Return the one asked for, that of the model's container or the one beside it, or nothing."""
    if asked is not None:
        return _read(asked), _decide(f"{asked.name}, as asked for")
    files = find_model_files(model)
    if files.tokenizer is not None:
        with open_plain(model) as file:
            file.seek(files.tokenizer.offset)
            stored = file.read(files.tokenizer.length)
        return open_tokenizer(stored, model), _decide("the one in the model's container")
    beside = find_beside(model, TOKENIZER)
    if beside is None:
        return b"", ()
    try:
        return _read(beside), _decide("it lies beside the model")
    except InputError as error:
        left_out = Decision(subject="tokenizer", taken="left out", reason=error.message)
        return b"", (left_out,)


def _read(path: Path) -> bytes:
    try:
        with open_plain(path) as file:
            content = file.read()
    except OSError as error:
        raise InputError(f"the tokenizer {path} cannot be read: {error}", hint=_HINT) from error
    try:
        is_one = "model" in read_json(content)
    except (ValueError, TypeError):
        is_one = False
    if not is_one:
        raise InputError(f"{path} is no tokenizer.json: it is no JSON with a model", hint=_HINT)
    return content


def _decide(reason: str) -> tuple[Decision, ...]:
    taken = f"{TOKENIZER} goes into the bundle"
    return (Decision(subject="tokenizer", taken=taken, reason=reason),)
