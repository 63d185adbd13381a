"""Generate tokens by a bundle of a decoder: its entry points share constants and caches.

A prompt goes through the entry points of several tokens, all but its last token, which the one of
one token takes as it takes each token after it.  The loop over tokens is the runtime's own
(`adrenoc/native/src/generate/`), here or on a server: each token is picked on the device and fed to
the next step there, and what comes back are the tokens.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from adrenoc.base.errors import AccuracyError, InputError
from adrenoc.base.reporter import ms_since
from adrenoc.base.text.spelling import quote_word
from adrenoc.bundle.buckets import open_buckets
from adrenoc.bundle.bundle import Bundle
from adrenoc.bundle.chat import (
    IMAGE_ROWS,
    LOGITS,
    NEXT_TOKEN,
    PAST_LENGTH,
    TOKENS,
    Sampling,
    is_decoder,
)
from adrenoc.bundle.manifest import TensorSpec
from adrenoc.device.answers import WrongAnswerError
from adrenoc.device.fit import choose_edition
from adrenoc.device.place import RemotePlace, RunPlace, start_build
from adrenoc.device.result import (
    GpuState,
    LaunchReport,
    ProgramOptions,
    clock_notes,
    read_gpu_state,
)

if TYPE_CHECKING:
    from adrenoc.language.tokenizer import Allow, Grammar


_BUDGET_MS = 100
"""A call to a server collects tokens for so long: a token need not cost a way there and back."""


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What to generate: `most` tokens (0: all that there is room for), none after one of `ends`.
    `grammar` is the form of an answer, which a conversation keeps. Without `guesses` each token is
    made by itself."""

    most: int = 0
    ends: tuple[int, ...] = ()
    sampling: Sampling = field(default_factory=Sampling)
    with_logits: bool = False
    grammar: Grammar | None = None
    guesses: bool = True


class Decoder:
    """A loaded decoder, and how many tokens it has taken in."""

    def __init__(
        self,
        place: RunPlace,
        bundle: Bundle,
        programs: ProgramOptions | None = None,
        recording: str = "best",
        given: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        """`given` are inputs beside tokens and caches, the same for all tokens. Raises InputError
        where the bundle is no decoder, or takes more than is given."""
        check_is_decoder(bundle)
        _check_given(bundle, given or {})
        chosen = choose_edition(bundle, place.facts)
        bundle = chosen.bundle
        self.notes = chosen.notes
        """What a user should know of the kernels that run."""
        self._place, self._device = place, place.device()
        self._budget_ms = _BUDGET_MS if isinstance(place, RemotePlace) else 0
        self._constants: dict[str, Any] = {}
        manifest = bundle.manifest
        self._suppressed = manifest.suppress_tokens, manifest.begin_suppress_tokens
        specs = {spec.name: spec for spec in manifest.inputs}
        self._bounds = specs[TOKENS].bounds
        self._states = {n: self._make_empty(specs[n]) for n in manifest.states}
        self._others = {n: self._make_empty(specs[n]) for n in given or {}}
        self.give(given or {})
        self.rows = count_rows(bundle)
        self.ended = ""
        """Why no more tokens come: an end token (end), the wish (most), the context (full)."""
        self._loop = place.function("adrenoc.opencl.tokens")(place.number, recording, self.rows)
        self._held: list[Any] = []
        self._longest = 1
        self._logits: TensorSpec | None = None
        for part in open_buckets(bundle):
            self._load(part, programs)
        self._call("clear")
        self.length = 0
        """Tokens that the caches hold."""

    @property
    def vocabulary(self) -> int:
        """Return how many logits a token is picked of."""
        return self._logits.shape[-1] if self._logits is not None else 0

    def give(self, inputs: Mapping[str, np.ndarray]) -> None:
        """Have other values of inputs that were given; what the caches hold stays."""
        for name, value in inputs.items():
            self._others[name].copyfrom(value)

    def take_in(self, tokens: Sequence[int]) -> None:
        """Fill the caches with tokens, in as few runs as the entry points allow. Raises InputError
        where they have no room for so many."""
        self._check_room(len(tokens))
        # A call at a time: the answer to each has to come within the time for an answer.
        for begin in range(0, len(tokens), self._longest):
            part = list(tokens[begin : begin + self._longest])
            self._call("take_in", json.dumps(part))
            self.length += len(part)

    def generate(self, token: int, wish: Wish, allow: Allow | None = None) -> Iterator[list[int]]:
        """Yield tokens after `token`, which is taken in, as they come; `ended` says why no more do.
        `allow` says before each which may come, given those that came since it was asked. Raises
        InputError where the caches are full, or a bias is for a token that is not there."""
        self._check_room(1)
        self._start(token, wish, is_constrained=allow is not None)
        left, budget_ms = wish.most or self.rows, 0  # the first token comes alone
        tokens: list[int] = []
        while not self.ended:
            if allow is not None and not self._constrain(allow(tokens)):
                return
            tokens = self._next(budget_ms, left)
            left -= len(tokens)
            budget_ms = self._budget_ms
            yield tokens

    def step(self, token: int, *, logits: bool = False) -> tuple[int, np.ndarray | None]:
        """Take in one token; the most likely next one, and on request what it was picked of. Raises
        InputError where the caches are full."""
        (picked,) = next(self.generate(token, Wish(most=1, with_logits=logits)))
        return picked, self.read_logits() if logits else None

    def stop(self) -> None:
        """End what is being generated; nothing where nothing is."""
        self._call("stop")
        self.ended = self.ended or "stopped"
        self.length = int(self._call("length"))

    def read_logits(self) -> np.ndarray:
        """Return what the last token was picked of, where the wish asked for it."""
        if self._logits is None:
            raise WrongAnswerError("the bundle has no logits")
        row = np.frombuffer(self._call("logits"), self._logits.dtype)
        if row.size != self._logits.shape[-1]:
            raise WrongAnswerError(f"logits are {row.size} numbers")
        return row

    def rewind(self, length: int) -> None:
        """Forget all but the first tokens, which recurrent layers may have to take in again. Raises
        InputError where there are fewer."""
        if not 0 <= length <= self.length:
            raise InputError(
                f"rewind to {length} tokens, expected 0 to the {self.length} that are there",
                hint="adrenoc run BUNDLE --prompt-ids 1,2,3 begins anew",
            )
        self._call("rewind", length)
        self.length = length

    def save(self) -> bytes:
        """Return what the caches hold, for `restore`."""
        return bytes(self._call("save"))

    def restore(self, saved: bytes) -> None:
        """Have what `save` gave. Raises ValueError where it is no such thing, or more than the
        caches have room for."""
        self._call("restore", saved)
        self.length = int(self._call("length"))

    def read_cache(self, name: str) -> np.ndarray:
        """Return the rows of a cache that are there."""
        held: np.ndarray = self._states[name].numpy()[:, :, : self.length]
        return held

    def count_guesses(self) -> tuple[int, int]:
        """Count the runs that checked guesses for the last answer, and right tokens."""
        told = json.loads(self._call("guessed"))
        return told["runs"], told["tokens"]

    def launching(self) -> LaunchReport:
        """Return how the last step was launched."""
        return LaunchReport(**json.loads(self._call("report")))

    def _check_room(self, count: int) -> None:
        if self.length + count > self.rows:
            raise InputError(
                f"the context is full: it has {self.rows} rows, {self.length} of them hold tokens, "
                f"and there is no room for {count} more",
                hint=f"adrenoc compile MODEL --context {2 * self.rows}",
            )

    def _check_bias(self, sampling: Sampling) -> None:
        for token, _ in sampling.bias:
            if not 0 <= token < self.vocabulary:
                raise InputError(
                    f"a bias is given for the token {token}, expected 0 to {self.vocabulary - 1}",
                    hint="give the numbers of the model's own tokenizer",
                )

    def _constrain(self, allowed: bytes | None) -> bool:
        """Have the next token be one of these; whether there is to be one."""
        if allowed is None:
            self.stop()
            self.ended = "end"
        else:
            self._call("allow", allowed)
        return allowed is not None

    def _start(self, token: int, wish: Wish, *, is_constrained: bool) -> None:
        self._check_bias(wish.sampling)
        said = {
            "most": wish.most,
            "ends": list(wish.ends),
            "suppressed": list(self._suppressed[0]),
            "suppressed_first": list(self._suppressed[1]),
            "with_logits": wish.with_logits,
            "is_constrained": is_constrained,
            "guesses": wish.guesses,
            **asdict(wish.sampling),
            # Two words, which JSON there has as a number with a sign.
            "seed": wish.sampling.seed - ((wish.sampling.seed >> 63) << 64),
        }
        self.ended = ""
        self._call("start", token, json.dumps(said))

    def _next(self, budget_ms: int, left: int) -> list[int]:
        """Return at least one token, at most those that are left."""
        told = json.loads(self._call("next", budget_ms))
        tokens: list[int] = told["tokens"]
        most = self._bounds[1] if self._bounds else None
        picked = next((at for at, token in enumerate(tokens) if token - 1 == most), None)
        if picked is not None:  # what is beyond the last: none was the largest
            raise _explain_no_numbers(self.length + picked + 1)
        strange = [t for t in tokens if most is not None and t > most]
        if not 1 <= len(tokens) <= left or strange:
            raise WrongAnswerError(f"next answered {json.dumps(told)[:200]}")
        self.ended = told["ended"]
        self.length += len(tokens)
        return tokens

    def _call(self, name: str, *words: Any) -> Any:
        return self._place.look_up(self._loop, name)(*words)

    def _load(self, part: Bundle, programs: ProgramOptions | None) -> None:
        from tvm import relax

        place, manifest = self._place, part.manifest
        module = place.load(part)
        with start_build(place, part, module, programs) as wait_for_kernels:
            machine = relax.VirtualMachine(module, [self._device, place.cpu()])
            constants = self._bring_constants(part)
            wait_for_kernels()
        inputs = [spec.name for spec in manifest.inputs]
        there = {**self._states, **self._others}
        given = [there.get(s.name) or self._make_empty(s) for s in manifest.inputs]
        outputs = [spec.name for spec in manifest.outputs]
        tokens = next(spec.shape[-1] for spec in manifest.inputs if spec.name == TOKENS)
        picked = outputs.index(NEXT_TOKEN) if NEXT_TOKEN in outputs else None
        places = {
            "tokens": tokens,
            "ids": inputs.index(TOKENS),
            "past": inputs.index(PAST_LENGTH),
            "states": [inputs.index(name) for name in manifest.states],
            "slack": manifest.slack,
            "recurrent": [inputs.index(name) for name in manifest.recurrent],
            "picked": picked or 0,
            "picks": picked is not None and manifest.outputs[picked].shape[-1:] == (tokens,),
            "logits": outputs.index(LOGITS) if tokens == 1 else 0,
            "vocabulary": 0,
        }
        if tokens == 1:
            self._logits = next(spec for spec in manifest.outputs if spec.name == LOGITS)
            places["vocabulary"] = self.vocabulary
        self._call("add_entry", json.dumps(places), machine.module, "main", *given, *constants)
        self._longest = max(self._longest, tokens)
        # Held here: over RPC the other side knows their addresses alone.
        self._held += [module, machine, given]

    def _bring_constants(self, part: Bundle) -> list[Any]:
        """Return the constants of an entry point; what another one has brought is there already."""
        missing = [s for s in part.manifest.params if s.name not in self._constants]
        brought = self._place.constants(part, missing)
        self._constants.update({s.name: t for s, t in zip(missing, brought, strict=True)})
        return [self._constants[spec.name] for spec in part.manifest.params]

    def _make_empty(self, spec: TensorSpec) -> Any:
        import tvm

        return tvm.runtime.empty(spec.shape, spec.dtype, self._device)


def _explain_no_numbers(rows: int) -> AccuracyError:
    return AccuracyError(
        f"no logit is a number (NaN) after {rows} tokens, so no token can be picked: something "
        "that the model computes is beyond what its floats hold",
        hint="adrenoc check-accuracy MODEL names the layer and what has to stay in float32, and "
        "adrenoc compile MODEL --preset fp32 keeps all there",
    )


def count_rows(bundle: Bundle) -> int:
    """Count the tokens that there may be: one run behind the most that there may be before it."""
    specs = {spec.name: spec for spec in bundle.manifest.inputs}
    past = specs[PAST_LENGTH]
    if past.bounds:
        return past.bounds[1] + (specs[TOKENS].shape[-1] if specs[TOKENS].shape else 1)
    return specs[bundle.manifest.states[0]].shape[2]


def check_is_decoder(bundle: Bundle) -> None:
    """Refuse a bundle that generates no tokens. Raises InputError where it has no caches, or not
    the inputs of a decoder."""
    if not is_decoder(bundle.manifest):
        names = sorted(spec.name for spec in bundle.manifest.inputs)
        raise InputError(
            f"{bundle.path} is no decoder with caches: its inputs are {', '.join(names)}",
            hint=f"adrenoc run {quote_word(bundle.path)}",
        )


def other_inputs(bundle: Bundle) -> tuple[TensorSpec, ...]:
    """Return what a decoder takes beside tokens and caches, as what its encoder has made."""
    own = {TOKENS, PAST_LENGTH, *bundle.manifest.states}
    return tuple(spec for spec in bundle.manifest.inputs if spec.name not in own)


def _check_given(bundle: Bundle, given: Mapping[str, np.ndarray]) -> None:
    # No token of a text takes rows of a picture.
    wanted = {spec.name for spec in other_inputs(bundle)} - {IMAGE_ROWS}
    missing = sorted(wanted.difference(given))
    if missing:
        raise InputError(
            f"{bundle.path} also takes {', '.join(missing)}, which nobody gives while tokens are "
            "generated",
            hint=f"adrenoc run {quote_word(bundle.path)} --prompt-ids 1,2 --input "
            f"{missing[0]}=FILE.npy, or --encoder BUNDLE that makes it",
        )


_REPEATS = 3
_STEPS = 32
"""Tokens of a measurement."""
WARM_STEPS = 8
"""Tokens before it."""
_DEPTHS = (0, 1024, 4096)
_SEED_TOKEN = 1


@dataclass(frozen=True, kw_only=True)
class Prefill:
    """A prompt of so many tokens in one run: the median of its times."""

    tokens: int
    time_ms: float
    tokens_per_s: float


@dataclass(frozen=True, kw_only=True)
class Decode:
    """Tokens one by one, with so many in the context before them."""

    context: int
    token_ms: float
    tokens_per_s: float


@dataclass(frozen=True, kw_only=True)
class DecoderBench:
    """All of them; `first_token_ms` is that of a prompt as long as the longest prefill."""

    device: str
    rows: int
    prefill: tuple[Prefill, ...]
    first_token_ms: float
    decode: tuple[Decode, ...]
    memory_bytes: int | None
    launching: LaunchReport
    gpu: tuple[GpuState, ...]
    notes: tuple[str, ...]


def measure_decoder(
    decoder: Decoder, place: RunPlace, lengths: Sequence[int], told: Callable[[str], None]
) -> DecoderBench:
    """Time a loaded decoder; `lengths` are the tokens of its entry points, `told` hears how far.
    Raises RuntimeError, ValueError or MemoryError as TVM and the OpenCL runtime do."""
    device = place.device()
    gpu_state = place.function("adrenoc.runtime.gpu_state")
    longest = [length for length in lengths if length > 1]
    states = []
    prefill = []
    for length in longest:
        told(f"a prompt of {length} tokens")
        spent = time_prompt_ms(decoder, device, length)
        prefill.append(Prefill(tokens=length, time_ms=spent, tokens_per_s=length / spent * 1000))
    told("the first token")
    most = min(max(longest, default=1), decoder.rows - 1)
    first = statistics.median(_time_first(decoder, most) for _ in range(_REPEATS))
    states.append(read_gpu_state(gpu_state))
    decode: list[Decode] = []
    for depth in _DEPTHS:
        # The last depth that fits, where the context ends before it.
        at = min(depth, decoder.rows - WARM_STEPS - _STEPS)
        if at < 0 or any(found.context == at for found in decode):
            continue
        told(f"tokens after {at}")
        token_ms = time_token_ms(decoder, at, _STEPS)
        decode.append(Decode(context=at, token_ms=token_ms, tokens_per_s=1000 / token_ms))
    states.append(read_gpu_state(gpu_state))
    stats = place.function("adrenoc.opencl.memory_stats")
    return DecoderBench(
        device=str(place.facts["name"]),
        rows=decoder.rows,
        prefill=tuple(prefill),
        first_token_ms=first,
        decode=tuple(decode),
        memory_bytes=int(json.loads(stats(place.number))["peak_bytes"]),
        launching=decoder.launching(),
        gpu=tuple(state for state in states if state.is_known),
        notes=clock_notes(states, place.facts),
    )


def time_prompt_ms(decoder: Decoder, device: Any, length: int) -> float:
    """Return milliseconds of a prompt of `length` tokens in an empty context, the first apart.
    Raises RuntimeError, ValueError or MemoryError as TVM and the OpenCL runtime do."""
    times = []
    for _ in range(_REPEATS + 1):
        decoder.rewind(0)
        device.sync()
        begun = time.perf_counter()
        decoder.take_in([_SEED_TOKEN] * length)
        device.sync()
        times.append(ms_since(begun))
    return statistics.median(times[1:])


def _time_first(decoder: Decoder, length: int) -> float:
    decoder.rewind(0)
    begun = time.perf_counter()
    decoder.take_in([_SEED_TOKEN] * length)
    decoder.step(_SEED_TOKEN)
    return ms_since(begun)


def time_token_ms(decoder: Decoder, context: int, count: int) -> float:
    """Return milliseconds of one of `count` tokens after `context` others. The `WARM_STEPS` before
    them, which note and try the ways to launch, are not counted. Raises RuntimeError, ValueError or
    MemoryError as TVM and the OpenCL runtime do."""
    decoder.rewind(min(context, decoder.length))
    decoder.take_in([_SEED_TOKEN] * (context - decoder.length))
    _make_tokens(decoder, WARM_STEPS)
    begun = time.perf_counter()
    made = _make_tokens(decoder, count)
    return ms_since(begun) / made


def _make_tokens(decoder: Decoder, count: int) -> int:
    return sum(map(len, decoder.generate(_SEED_TOKEN, Wish(most=count, guesses=False))))
