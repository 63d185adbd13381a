"""`adrenoc run BUNDLE --prompt ...`: a decoder generates tokens, here or on a server; `--bench`:
what it takes. Beside its tokens it takes files, and what encoders make of files before it.

Each bundle takes the files that are for its inputs, what the ones before it took from files by the
same names, and what they gave under the name of an input; or under the name that exporters give
what becomes one, as an encoder's mask becomes its decoder's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from adrenoc.base.errors import AdrenocError, CheckFailedError, InputError
from adrenoc.base.text.report import Fields, Part, Title, tabulate
from adrenoc.base.text.spelling import figure, quote_word, show_bytes, show_ms
from adrenoc.cli import console
from adrenoc.cli.guarded import wants_json
from adrenoc.cli.model_params import parse_numbers
from adrenoc.cli.options import choose_programs, reach

if TYPE_CHECKING:
    import numpy as np

    from adrenoc.bundle.bundle import Bundle
    from adrenoc.bundle.chat import Pictures
    from adrenoc.bundle.manifest import TensorSpec
    from adrenoc.check.generation import TokenCheck
    from adrenoc.check.inputs import InputFile
    from adrenoc.cli.options import PlaceChoice
    from adrenoc.cli.run import GenerationOptions, RunGiven
    from adrenoc.device.generate import Decoder, DecoderBench, Wish
    from adrenoc.device.place import RunPlace
    from adrenoc.language.tokenizer import Tokenizer


_MADE = {
    "encoder_hidden_states": ("last_hidden_state", "hidden_states", "encoder_output"),
    "encoder_attention_mask": ("attention_mask",),
    "encoder_outputs": ("last_hidden_state", "hidden_states", "encoder_output"),
}
"""Inputs, and what exporters call the outputs or inputs of an encoder that they are."""
_RENAMED = (("past_key_values", "present"), ("past", "present"))


class EncoderInputs:
    """Files that nobody has taken yet, and what bundles have taken of others, and given."""

    def __init__(self, files: Sequence[InputFile], pictures: Pictures | None = None) -> None:
        """`pictures` say how an image becomes an input."""
        from adrenoc.check.inputs import ImageOptions

        self._files, self._image = list(files), ImageOptions()
        if pictures is not None:
            said = pictures.settings
            self._image = ImageOptions(
                mean=said.mean, std=said.std, filter=said.filter, crops=said.crops
            )
        self._given: dict[str, np.ndarray] = {}

    def give(self, outputs: Mapping[str, np.ndarray]) -> None:
        """Have what a bundle has made."""
        self._given.update(outputs)

    def take(
        self, bundle: Bundle, specs: Sequence[TensorSpec], *, is_last: bool
    ) -> dict[str, np.ndarray]:
        """Return an array for each of `specs`, inputs of `bundle`. Raises InputError where some are
        not there, or a file is damaged, of another shape, or of no use."""
        from adrenoc.check.inputs import NAMED_ARRAYS, make_inputs

        found = {spec.name: array for spec in specs if (array := self._made_for(spec)) is not None}
        left = [spec for spec in specs if spec.name not in found]
        names = {spec.name for spec in left}
        mine = [f for f in self._files if f.name in names or (not f.name and (left or is_last))]
        plain = [f.path for f in mine if not f.name and f.path.suffix.lower() not in NAMED_ARRAYS]
        if len(left) > 1 and plain:
            raise InputError(
                f"{bundle.path} takes {', '.join(spec.name for spec in left)}, and {plain[0]} is "
                "one of them",
                hint=f"{_fix(left[1:])}; or --input NAME=FILE for each",
            )
        if mine:
            read = make_inputs(left, mine, image=self._image)
            of_files = {name: read[name] for name in set(read) - read.drawn}
            found.update(of_files)
            self._given.update(of_files)
        self._files = [file for file in self._files if file not in mine]
        missing = [spec.name for spec in specs if spec.name not in found]
        if missing:
            shape = next(list(spec.shape) for spec in specs if spec.name == missing[0])
            raise InputError(
                f"{bundle.path} also takes {', '.join(missing)}, which nobody gives; expected "
                f"'{missing[0]}' as {shape}",
                hint=f"--input {missing[0]}=FILE.npy, or --encoder BUNDLE that makes it; "
                + _fix([spec for spec in specs if spec.name in missing]),
            )
        if is_last and self._files:
            raise InputError(
                f"--input {self._files[0].name}={self._files[0].path}: neither {bundle.path} nor "
                "an encoder before it has such an input that is left",
                hint=f"adrenoc inspect {quote_word(bundle.path)}",
            )
        for spec in specs:
            if found[spec.name].shape != spec.shape:
                raise InputError(
                    f"'{spec.name}' of {bundle.path} gets {list(found[spec.name].shape)}, expected "
                    f"{list(spec.shape)}",
                    hint=f"adrenoc compile MODEL --shape {spec.name}:"
                    + ",".join(map(str, found[spec.name].shape)),
                )
        return {spec.name: found[spec.name].astype(spec.dtype, copy=False) for spec in specs}

    def _made_for(self, spec: TensorSpec) -> np.ndarray | None:
        return next((self._given[n] for n in _names_of(spec.name) if n in self._given), None)


def _fix(specs: Sequence[TensorSpec]) -> str:
    """Return how a bundle is compiled that does not take these inputs, as masks of ones."""
    said = (f"--fix {s.name}={'true' if s.dtype == 'bool' else 'VALUE'}" for s in specs)
    return f"where it is always the same: adrenoc compile MODEL {' '.join(said)}"


def _names_of(name: str) -> Iterator[str]:
    """Return an input's name, and those of the outputs that it may be."""
    yield name
    for old, new in _RENAMED:
        if old in name:
            yield name.replace(old, new, 1)
    yield from _MADE.get(name, ())


def run_encoders(
    place: RunPlace, paths: Sequence[Path], offer: EncoderInputs, prompt: Sequence[int]
) -> None:
    """Run encoders, each on what there is by then. An encoder after the first may be a decoder's
    first call, of which only what it makes of the one before it counts: its tokens are the
    prompt's. Raises InputError where an input is not there, or a file does not fit."""
    import numpy as np

    from adrenoc.bundle.bundle import open_bundle
    from adrenoc.bundle.chat import TOKENS
    from adrenoc.device.execute import execute
    from adrenoc.device.result import Progress, RunOptions

    for number, path in enumerate(paths):
        bundle = open_bundle(path)
        specs = bundle.manifest.inputs
        tokens = [s for s in specs if s.name == TOKENS and number]
        taken = offer.take(bundle, [s for s in specs if s not in tokens], is_last=False)
        for spec in tokens:
            taken[spec.name] = np.resize(np.asarray(prompt, spec.dtype), spec.shape)
        options = RunOptions(repeat=1, warmup=0)
        done = execute(place, bundle, taken, options, Progress())
        offer.give(done.outputs)


@dataclass(frozen=True, kw_only=True)
class Generated:
    """Tokens with the time that the prompt, the first token and each further one took.

    `ended` says why there are no more: "end" (an end token), "most" or "full" (the context); `fed`
    what the prompt was where nobody gave one, `guessed` the tokens that were right where others
    were guessed.
    """

    tokens: list[int]
    ended: str
    prompt_ms: float
    first_ms: float
    token_ms: float
    context_full: bool
    text: str | None = None
    fed: str | None = None
    guessed: int = 0


_DRAWN = 8
"""Tokens of a prompt that nobody gave."""
_TAKEN = {
    *("bundle", "prompt", "ids", "bench", "most", "sample", "encoders"),
    *("files", "seed", "place", "reference", "tolerance"),
}
"""Fields of the options of `run` that generating takes."""


def run_if_decoder(given: RunGiven) -> int | None:
    """Have a decoder generate tokens where that is asked for; None where it is not. Raises
    click.UsageError for options that do not go together, CheckFailedError where the tokens are not
    those of the model."""
    asked, reference, fed = given.asked, given.reference, None
    asked.check(reference)
    if not asked.is_for_decoder and reference is not None and given.steps is None:
        asked, fed = _draw_prompt(given.bundle, asked, given.seed)
    if not asked.is_for_decoder:
        return None
    from adrenoc.bundle.bundle import open_bundle
    from adrenoc.bundle.chat import IMAGE_ROWS, find_pictures
    from adrenoc.device.generate import Decoder, Wish, check_is_decoder, other_inputs

    _refuse_others({*_TAKEN, *(["repeat"] if fed else [])}, asked.option)
    quiet = wants_json()
    bundle = open_bundle(given.bundle)
    check_is_decoder(bundle)
    tokenizer = _open_tokenizer(bundle, asked)
    prompt = _read_prompt(bundle, asked, tokenizer)
    wish = Wish(
        most=asked.most,
        ends=bundle.manifest.end_tokens,
        sampling=asked.sampling(given.seed),
        with_logits=reference is not None,
    )
    more = bool(asked.encoders or given.files)
    pictures = find_pictures(bundle, is_given=more)
    prompt = prompt if pictures is None else pictures.place(prompt)
    offer = EncoderInputs(given.files, pictures)
    with reach_place(bundle, given.place) as place:
        run_encoders(place, asked.encoders, offer, prompt)
        wanted = [one for one in other_inputs(bundle) if one.name != IMAGE_ROWS or more]
        inputs = offer.take(bundle, wanted, is_last=True)
        decoder = Decoder(place, bundle, choose_programs(given.place), given=inputs)
        if asked.bench:
            return bench_decoder(bundle, decoder, place)
        said = _Said(tokenizer, shown=not quiet)
        result, logits = _generate(decoder, prompt, wish, said)
        result = replace(result, fed=fed)
    check = None
    if reference is not None:
        began = prompt, inputs
        check = _check(bundle, reference, began, result, logits, given.tolerance)
    return _tell(decoder, result, check, len(prompt))


def _refuse_others(allowed: Collection[str], what: str) -> None:
    """Refuse options that mean nothing with `what`, which asks for a decoder. Raises
    click.UsageError where one was given."""
    ctx = click.get_current_context()
    for param in ctx.command.params:
        given = ctx.get_parameter_source(param.name or "")
        if given is click.core.ParameterSource.COMMANDLINE and param.name not in allowed:
            raise click.UsageError(f"{param.opts[-1]} is not for {what}", ctx)


def _draw_prompt(
    path: Path, asked: GenerationOptions, seed: int
) -> tuple[GenerationOptions, str | None]:
    """Ask for random tokens to check a decoder with, and tell of them; nothing of another bundle.
    It takes as many as leave room in the context for as many more."""
    import numpy as np

    from adrenoc.bundle.bundle import open_bundle
    from adrenoc.bundle.chat import TOKENS, is_decoder
    from adrenoc.device.generate import count_rows

    bundle = open_bundle(path)
    if not is_decoder(bundle.manifest):
        return asked, None
    bounds = next((s.bounds for s in bundle.manifest.inputs if s.name == TOKENS), ()) or (0, 0)
    count = max(1, min(_DRAWN, count_rows(bundle) // 2))
    drawn = np.random.default_rng(seed).integers(bounds[0], bounds[1], count, endpoint=True)
    said = f"{count} random tokens from seed {seed}"
    return replace(asked, ids=",".join(map(str, drawn))), said


@contextmanager
def reach_place(bundle: Bundle, choice: PlaceChoice) -> Iterator[RunPlace]:
    """Open the device of this machine, of a server or of a phone."""
    from adrenoc.device.run import open_place

    with reach(choice) as address, open_place(bundle, address, choice.cl_device) as place:
        yield place


def _open_tokenizer(bundle: Bundle, asked: GenerationOptions) -> Tokenizer | None:
    """Open the bundle's tokeniser, where there is a text. Raises click.UsageError where there is
    none."""
    if asked.prompt is None:
        return None
    from adrenoc.bundle.bundle import TOKENIZER
    from adrenoc.language.tokenizer import Tokenizer

    path = bundle.file(TOKENIZER)
    if not path.is_file():
        raise click.UsageError(
            f"--prompt needs a tokenizer, and {bundle.path} has no {TOKENIZER}; adrenoc compile "
            "puts one into it that lies beside the model, or that --tokenizer names"
        )
    return Tokenizer(path)


def _read_prompt(
    bundle: Bundle, asked: GenerationOptions, tokenizer: Tokenizer | None
) -> tuple[int, ...]:
    """Read the tokens that the options say. Raises InputError where the model has no row of one of
    them."""
    if asked.bench:
        return ()
    if asked.prompt is not None and tokenizer is not None:
        what = "the tokenizer makes of --prompt"
        prompt = tuple(tokenizer.encode(asked.prompt))
    else:
        what = "--prompt-ids has"
        prompt = parse_numbers(asked.ids or "", "token numbers, such as 1,2,3", least=0)
    from adrenoc.bundle.chat import TOKENS

    bounds = next((s.bounds for s in bundle.manifest.inputs if s.name == TOKENS), ())
    for token in prompt:
        if bounds and token > bounds[1]:
            raise InputError(
                f"{what} the token {token}, expected 0 to {bounds[1]}",
                hint="give the numbers that the model's own tokeniser gives",
            )
    return prompt


class _Said:
    """What is told of tokens as they come: their text where there is a tokeniser, else numbers."""

    def __init__(self, tokenizer: Tokenizer | None, *, shown: bool) -> None:
        from adrenoc.language.tokenizer import TextStream

        self._stream = None if tokenizer is None else TextStream(tokenizer)
        self._print: Callable[[str], None] = console.print_piece if shown else lambda text: None
        self.text: str | None = None if tokenizer is None else ""

    def tell(self, tokens: list[int]) -> None:
        if self._stream is None:
            self._print("".join(f"{token} " for token in tokens))
        else:
            self._tell_text(self._stream.feed(tokens))

    def end(self) -> None:
        if self._stream is not None:
            self._tell_text(self._stream.finish())
        self._print("\n")

    def _tell_text(self, text: str) -> None:
        self.text = (self.text or "") + text
        self._print(text)


def _generate(
    decoder: Decoder, prompt: tuple[int, ...], wish: Wish, said: _Said
) -> tuple[Generated, list[np.ndarray]]:
    started = time.perf_counter()
    *before, token = prompt
    decoder.take_in(before)
    prompt_ms = (time.perf_counter() - started) * 1000
    tokens: list[int] = []
    logits: list[np.ndarray] = []
    first_ms = 0.0
    first_there = started
    try:
        for some in decoder.generate(token, wish):
            if not tokens:
                first_there = time.perf_counter()
                first_ms = (first_there - started) * 1000
            tokens += some
            if wish.with_logits:
                logits.append(decoder.read_logits())
            said.tell(some)
    except AdrenocError as error:
        if tokens:
            error.message += f" (after {len(tokens)} tokens)"
        raise
    finally:
        said.end()
    spent_ms = (time.perf_counter() - first_there) * 1000
    result = Generated(
        tokens=tokens,
        ended=decoder.ended,
        prompt_ms=prompt_ms,
        first_ms=first_ms,
        token_ms=spent_ms / (len(tokens) - 1) if len(tokens) > 1 else 0.0,
        context_full=decoder.ended == "full",
        text=said.text,
        guessed=decoder.count_guesses()[1],
    )
    return result, logits


def _check(
    bundle: Bundle,
    reference: Path,
    began: tuple[tuple[int, ...], Mapping[str, np.ndarray]],
    result: Generated,
    logits: list[np.ndarray],
    tolerance: float | None,
) -> TokenCheck:
    """Compare with the reference behind the prompt and the other inputs that it `began` with."""
    from adrenoc.check.generation import check_tokens, in_halves, note_other_file
    from adrenoc.device.compare import default_tolerance, is_float32

    values = bundle.manifest.options.values
    dtypes = [str(values[f"{what}_dtype"]) for what in ("storage", "compute")]
    # A model in halves is known no better than halves are: its reference rounds to them.
    usual = default_tolerance(*("float16" if in_halves(reference) else one for one in dtypes))
    limit = usual if tolerance is None else tolerance
    prompt, given = began
    check = check_tokens(reference, prompt, result.tokens, logits, tolerance=limit, given=given)
    return note_other_file(replace(check, in_float32=is_float32(*dtypes)), bundle, reference)


def _tell(decoder: Decoder, result: Generated, check: TokenCheck | None, prompt: int) -> int:
    told = {name: value for name, value in asdict(result).items() if value is not None}
    told |= {"notes": decoder.notes} if decoder.notes else {}
    told |= {} if check is None else {"check": {**asdict(check), "passed": check.passed}}
    fields = [*_list_fields(decoder.rows, result, check, prompt)]
    fields += [("note", note) for note in decoder.notes]
    console.tell(told, Fields(pairs=fields))
    if check is not None and not wants_json():
        check.raise_if_failed()
    return 0 if check is None or check.passed else CheckFailedError.exit_code


def _list_fields(
    rows: int, result: Generated, checked: TokenCheck | None, prompt: int
) -> Iterator[tuple[str, str]]:
    each = result.token_ms
    pace = f", {each:.2f} ms each, {1000 / each:.1f} a second" if each else ""
    what = result.fed or f"{prompt} tokens"
    yield "prompt", f"{what}, {result.prompt_ms:.1f} ms for all but the last"
    yield "tokens", f"{len(result.tokens)}, the first after {result.first_ms:.1f} ms{pace}"
    if result.guessed:
        yield "guessed", f"{result.guessed} of them, and checked several in a run"
    if result.context_full:
        yield "context", f"full: it has {rows} rows; adrenoc compile MODEL --context {2 * rows}"
    if result.ended == "end":
        yield "ended", f"by the end token {result.tokens[-1]}"
    if checked is not None:
        near = f", {checked.near} within the tolerance of its choice" if checked.near else ""
        yield (
            "check",
            f"{checked.equal} of {checked.tokens} tokens are the reference's{near}, logits within "
            f"{checked.max_error:.2e} of their range",
        )
        if checked.note:
            yield "reference", checked.note


def bench_decoder(bundle: Bundle, decoder: Decoder, place: RunPlace) -> int:
    """Measure a loaded decoder, and show what was found."""
    from adrenoc.bundle.buckets import open_buckets
    from adrenoc.bundle.chat import TOKENS
    from adrenoc.device.generate import measure_decoder

    parts = [part.manifest.inputs for part in open_buckets(bundle)]
    lengths = sorted(spec.shape[-1] for specs in parts for spec in specs if spec.name == TOKENS)
    with console.show_progress() as reporter:
        found = measure_decoder(decoder, place, lengths, reporter.note)
    return console.tell(found, _bench_parts(bundle.manifest.name, found))


def _bench_parts(name: str, found: DecoderBench) -> Iterator[Part]:
    held = found.memory_bytes
    memory = "" if held is None else f", {show_bytes(held)} of its memory"
    yield Title(text=name, detail=f"on {found.device}{memory}")
    yield tabulate(
        found.prefill,
        {
            "prompt": lambda one: one.tokens,
            "time": lambda one: show_ms(one.time_ms),
            "tokens a second": lambda one: figure(one.tokens_per_s, ".1f"),
        },
    )
    yield tabulate(
        found.decode,
        {
            "context": lambda one: one.context,
            "a token": lambda one: show_ms(one.token_ms),
            "tokens a second": lambda one: figure(one.tokens_per_s, ".1f"),
        },
    )
    launching = found.launching
    by = f"{launching.launches} launches by {launching.mode}, {launching.host_ms:.2f} ms of host"
    fields = [("first token", show_ms(found.first_token_ms)), ("a token", by)]
    fields += [("GPU", str(state)) for state in found.gpu]
    yield Fields(pairs=[*fields, *(("note", note) for note in found.notes)])
