"""Tokens drawn on the device: by a model of the same arithmetic, and as often as they shall be.

A step of a model that always gives the same logits draws anew at each position.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi

from adrenoc.bundle.chat import Sampling

VOCABULARY = 700
DRAWS = 6000


def make_loop(device, logits: np.ndarray):
    """A loop over a step whose logits are always these, as its likeliest token is."""
    loop = tvm_ffi.get_global_func("adrenoc.opencl.tokens")(device.index, "best", 1 << 20)
    ids = tvm.runtime.empty((1, 1), "int64", device)
    past = tvm.runtime.empty((1,), "int32", device)
    largest = np.array([[logits.argmax()]], np.int64)
    given = [tvm.runtime.tensor(a, device) for a in (largest, logits.reshape(1, 1, -1))]
    none = {"states": [], "recurrent": [], "slack": 0, "picks": False}
    places = {"tokens": 1, "ids": 0, "past": 1, **none, "picked": 0, "logits": 1}
    main = tvm_ffi.convert(lambda *arguments: tvm_ffi.convert(given))
    loop["add_entry"](json.dumps({**places, "vocabulary": logits.size}), main, "", ids, past)
    return loop


def start(loop, token: int, count: int, **said) -> None:
    waits = {"with_logits": False, "is_constrained": False, "guesses": True}
    wish = {"most": count, "ends": [], "suppressed": [], "suppressed_first": [], **waits}
    sampling = asdict(Sampling(temperature=1.0, seed=7))
    loop["start"](token, json.dumps({**wish, **sampling, **said}))


def draw(
    device, logits: np.ndarray, count: int, *, before: Sequence[int] = (), first: int = 0, **said
) -> list[int]:
    """Tokens after some that the context has `before`, and a `first` one."""
    loop = make_loop(device, logits)
    if before:
        loop["take_in"](json.dumps(list(before)))
    start(loop, first, count, **said)
    tokens: list[int] = []
    ended = ""
    while not ended:
        told = json.loads(loop["next"](1000))
        ended = told["ended"]
        tokens += told["tokens"]
    assert loop["length"]() == len(before) + len(tokens)
    return tokens


def mixed(x: np.ndarray) -> np.ndarray:
    """The finaliser of MurmurHash3."""
    x = x.astype(np.uint32)
    x ^= x >> np.uint32(16)
    x *= np.uint32(0x85EBCA6B)
    x ^= x >> np.uint32(13)
    x *= np.uint32(0xC2B2AE35)
    return x ^ (x >> np.uint32(16))


def log_weights(logits: np.ndarray, temperature: float) -> np.ndarray:
    wide = logits.astype(np.float32)
    return (wide - wide.max()) * np.float32(1 / temperature)


def kept(
    logits: np.ndarray, temperature: float, top_k: int, top_p: float, min_p: float = 0.0
) -> np.ndarray:
    """Which tokens stay, by sums of whole numbers as on the device."""
    stays = np.ones(logits.size, bool)
    if 0 < top_k < logits.size:
        stays &= logits >= np.sort(logits)[-top_k]
    share = int(np.ceil(top_p * 65536))
    if share < 65536:
        weights = (np.exp(log_weights(logits, temperature)) * np.float32(1 << 24)).astype(np.int64)
        weights[~stays] = 0
        target = max(int(weights.sum()) * share >> 16, 1)
        above = np.array([weights[logits > logit].sum() for logit in logits])
        stays &= above < target
    if min_p:
        odds = np.exp(logits.astype(np.float64) / temperature)
        stays &= odds >= min_p * odds.max() * (1 - 1e-6)
    return stays


def scores(logits: np.ndarray, temperature: float, seed: int, position: int) -> np.ndarray:
    """How early each token is; the highest wins."""
    first = mixed(np.array([position + 0x9E3779B9], np.uint64).astype(np.uint32))
    second = mixed(np.uint32(seed >> 32) ^ first)
    stream = mixed(np.uint32(seed & 0xFFFFFFFF) ^ second)
    places = np.arange(logits.size, dtype=np.uint32) + np.uint32(0x85EBCA6B)
    drawn = mixed(stream ^ mixed(places))
    part = np.minimum(
        (drawn.astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-32),
        np.float32(1 - 2.0**-24),
    )
    return log_weights(logits, temperature) - np.log(-np.log1p(-part))


def some_logits(dtype: str = "float32", seed: int = 3) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=VOCABULARY) * 3).astype(dtype)


CASES = [
    {"temperature": 1.0},
    {"temperature": 0.6, "top_k": 20},
    {"temperature": 1.4, "top_p": 0.8},
    {"temperature": 0.9, "top_k": 50, "top_p": 0.7, "seed": (5 << 32) + 9},
    {"temperature": 1.3, "min_p": 0.05},
    {"temperature": 0.8, "top_k": 30, "top_p": 0.9, "min_p": 0.02},
]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_tokens_are_those_of_the_same_arithmetic(device, case, dtype):
    logits = some_logits(dtype)
    tokens = draw(device, logits, 300, **case)
    said = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "seed": 7, **case}
    stays = kept(logits, said["temperature"], said["top_k"], said["top_p"], case.get("min_p", 0.0))
    for position, token in enumerate(tokens):
        early = scores(logits, said["temperature"], said["seed"], position)
        early[~stays] = -np.inf
        # Logarithms of another library may be off by an ulp: then two are as early.
        assert early[token] >= early.max() - 1e-4, position


@pytest.mark.parametrize("case", CASES, ids=str)
def test_tokens_come_as_often_as_they_shall(device, case):
    logits = some_logits()
    tokens = draw(device, logits, DRAWS, **case)
    temperature, top_k = case["temperature"], case.get("top_k", 0)
    stays = kept(logits, temperature, top_k, case.get("top_p", 1.0), case.get("min_p", 0.0))
    odds = np.exp(logits.astype(np.float64) / temperature) * stays
    odds /= odds.sum()
    assert stays.sum() > 5 if not top_k else stays.sum() <= top_k
    counts = np.bincount(tokens, minlength=VOCABULARY)
    assert not counts[~stays].any()
    # Rare tokens together, so that each part is expected often enough for the statistic.
    common = odds * DRAWS >= 20
    expected = np.append(odds[common], odds[~common].sum()) * DRAWS
    seen = np.append(counts[common], counts[~common].sum())
    kinds = expected > 0
    statistic = ((seen - expected)[kinds] ** 2 / expected[kinds]).sum()
    freedom = kinds.sum() - 1
    # Four standard deviations of the distribution that it has where the draws are right.
    assert abs(statistic - freedom) < 4 * np.sqrt(2 * freedom) + 4
    # And the test would see a temperature that is a tenth off.
    other = np.exp(logits.astype(np.float64) / (1.1 * temperature)) * stays
    other /= other.sum()
    wrong = np.append(other[common], other[~common].sum()) * DRAWS
    assert ((seen - wrong)[kinds] ** 2 / wrong[kinds]).sum() > freedom + 4 * np.sqrt(2 * freedom)


def test_a_seed_and_a_position_decide(device):
    logits = some_logits()
    first = draw(device, logits, 50)
    assert draw(device, logits, 50) == first
    assert draw(device, logits, 50, seed=8) != first
    assert draw(device, logits, 40, before=[0] * 10) == first[10:]
    assert draw(device, logits, 50, temperature=0.0) == [int(logits.argmax())] * 50


def change(
    logits: np.ndarray, prompt: Sequence[int], made: Sequence[int], said: Mapping[str, Any]
) -> np.ndarray:
    """Logits after a bias and penalties: SequenceBiasLogitsProcessor, then of prompt and answer
    RepetitionPenaltyLogitsProcessor of transformers, then OpenAI's penalties of the answer."""
    changed = logits.astype(np.float64)
    for token, added in said.get("bias", ()):
        changed[token] += added
    seen = sorted({*prompt, *made})
    factor = said.get("repetition_penalty", 1.0)
    changed[seen] = np.where(changed[seen] > 0, changed[seen] / factor, changed[seen] * factor)
    times = np.bincount(made, minlength=logits.size) if made else np.zeros(logits.size)
    changed -= said.get("frequency_penalty", 0.0) * times
    changed -= said.get("presence_penalty", 0.0) * (times > 0)
    return changed


CHANGES = [
    {"bias": [[5, 50.0], [7, 49.0]]},
    {"repetition_penalty": 1.7},
    {"presence_penalty": 2.5},
    {"frequency_penalty": 0.8},
    {"bias": [[3, 9.0]], "repetition_penalty": 1.3, "presence_penalty": -0.5},
    {"repetition_penalty": 0.7, "frequency_penalty": 1.1, "presence_penalty": 0.3},
]


@pytest.mark.parametrize("case", CHANGES, ids=str)
@pytest.mark.parametrize("temperature", [0.0, 1.2])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_logits_are_changed_by_what_was_made(device, case, temperature, dtype):
    logits = some_logits(dtype)
    order = np.argsort(logits)
    prompt = [int(order[-1]), int(order[-3]), int(order[0])]
    *before, first = prompt
    said = {**case, "temperature": temperature}
    tokens = draw(device, logits, 120, before=before, first=first, **said)
    plain = draw(device, logits, 120, before=before, first=first, temperature=temperature)
    assert tokens != plain
    for at, token in enumerate(tokens):
        changed = change(logits, prompt, tokens[:at], case).astype(np.float32)
        if temperature:
            early = scores(changed, temperature, 7, len(before) + at)
            assert early[token] >= early.max() - 1e-4, at
        else:
            assert changed[token] >= changed.max() - 1e-5, at


def test_what_was_counted_is_forgotten_with_the_next_start(device):
    logits = some_logits()
    loop = make_loop(device, logits)
    answers = []
    for _ in range(2):
        loop["rewind"](0)
        start(loop, 3, 20, temperature=0.0, presence_penalty=1e6)
        tokens: list[int] = []
        while len(tokens) < 20:
            tokens += json.loads(loop["next"](1000))["tokens"]
        answers.append(tokens)
    assert answers[0] == answers[1] == [int(one) for one in np.argsort(-logits)[:20]]


def test_tokens_that_are_allowed(device):
    logits = some_logits()
    loop = make_loop(device, logits)
    chance = np.random.default_rng(1)
    for temperature in (0.0, 1.5):
        loop["rewind"](0)
        start(loop, 3, 30, temperature=temperature, is_constrained=True, frequency_penalty=0.1)
        for _ in range(30):
            allowed = chance.random(VOCABULARY) < 0.02
            allowed[chance.integers(VOCABULARY)] = True
            bits = np.zeros(-(-VOCABULARY // 32) * 32, np.uint8)
            bits[:VOCABULARY] = allowed
            loop["allow"](np.packbits(bits, bitorder="little").tobytes())
            (token,) = json.loads(loop["next"](1000))["tokens"]
            assert allowed[token]
            best = np.flatnonzero(allowed)[logits[allowed].argmax()]
            assert temperature or logits[token] >= logits[best] - 3.0
    with pytest.raises(ValueError, match="no tokens are made that somebody constrains"):
        loop["allow"](bytes(88))
    start(loop, 3, 1, is_constrained=True)
    with pytest.raises(ValueError, match="1 words of 32 bits, expected 22"):
        loop["allow"](bytes(4))


@pytest.mark.parametrize("temperature", [0.0, 1e-3])
def test_tokens_that_are_suppressed(device, temperature):
    """The first of them only as the first behind a prompt."""
    logits = some_logits()
    best, second, third = np.argsort(-logits)[:3].tolist()
    said = {"suppressed": [best, VOCABULARY + 40], "suppressed_first": [second]}
    loop = make_loop(device, logits)

    def make(token: int) -> list[int]:
        start(loop, token, 9, temperature=temperature, **said)
        told = [json.loads(loop["next"](1000)) for _ in range(9)]
        return [token for one in told for token in one["tokens"]][:9]

    assert make(0) == [third] + [second] * 8
    assert make(second) == [second] * 9
    loop["take_in"](json.dumps([second]))
    assert make(second) == [third] + [second] * 8


def test_an_end_token_is_the_last(device):
    logits = some_logits()
    tokens = draw(device, logits, 200)
    ends = [tokens[20], tokens[50]]
    first = min(tokens.index(end) for end in ends)
    assert draw(device, logits, 200, ends=ends) == tokens[: first + 1]


@pytest.mark.parametrize(
    ("logits", "case", "allowed"),
    [
        ([1.0, 5.0, 5.0, -2.0], {"top_k": 1}, {1, 2}),
        ([1.0, 9.0, 3.0, -2.0], {"top_p": 0.01}, {1}),
        ([np.nan, 2.0, 2.5, np.nan], {}, {1, 2}),
        ([-np.inf, -np.inf, -1e30, -np.inf], {}, {2}),
        ([0.0, np.inf, 3.0, 1.0], {}, {1}),
        ([-5.0, -6.0, -7.0, -100.0], {"top_k": 3}, {0, 1, 2}),
    ],
)
def test_strange_logits(device, logits, case, allowed):
    assert set(draw(device, np.array(logits, np.float32), 200, **case)) == allowed


@pytest.mark.parametrize(
    "case",
    [
        *({"temperature": -1.0}, {"top_p": -0.5}, {"top_p": 1.5}, {"top_k": -1}, {"min_p": 2.0}),
        *({"repetition_penalty": 0.0}, {"presence_penalty": 1e39}, {"bias": [[VOCABULARY, 1.0]]}),
        *({"bias": [[-1, 1.0]]}, {"bias": [[0, 1e39]]}),
    ],
    ids=str,
)
def test_numbers_that_mean_nothing(device, case):
    with pytest.raises(ValueError, match="expected"):
        draw(device, some_logits(), 1, **case)


ROWS = 2048


def runs_of(device, entries: tuple[int, ...], tokens: int) -> list[int]:
    """The tokens that each run of a prompt takes, by entries that compute nothing."""
    loop = tvm_ffi.get_global_func("adrenoc.opencl.tokens")(device.index, "off", ROWS)
    none = {"states": [], "recurrent": [], "slack": 0, "picks": False}
    seen: list[int] = []
    for length in entries:
        ids = tvm.runtime.empty((1, length), "int64", device)
        past = tvm.runtime.empty((1,), "int32", device)
        picked = tvm.runtime.empty((1, length), "int64", device)
        logits = tvm.runtime.empty((1, length, 8), "float32", device)
        own = {"picked": 0, "logits": 1, "vocabulary": 8}
        places = {"tokens": length, "ids": 0, "past": 1, **none, **own}

        def main(*_, length: int = length, given=(picked, logits)):
            seen.append(length)
            return tvm_ffi.convert(list(given))

        loop["add_entry"](json.dumps(places), tvm_ffi.convert(main), "", ids, past)
    loop["take_in"](json.dumps([0] * tokens))
    assert loop["length"]() == tokens
    return seen


@pytest.mark.parametrize(
    ("tokens", "runs"),
    [
        (2, [16]),
        (16, [16]),
        (17, [16, 1]),
        (18, [16, 16]),
        (64, [16, 16, 16, 16]),
        (65, [128]),
        (128, [128]),
        (140, [128, 16]),
        (250, [128, 128]),
        (257, [512]),
        (600, [512, 128]),
        (550, [512, 16, 16, 16]),
    ],
)
def test_prompts_take_what_is_cheapest(device, tokens, runs):
    assert runs_of(device, (1, 16, 128, 512), tokens) == runs


def test_runs_that_only_read_the_weights_are_not_repeated(device):
    """A run of 4 takes nearly as long as one of 16: both wait for the weights."""
    assert runs_of(device, (1, 4, 16), 8) == [16]
    assert runs_of(device, (1, 4), 10) == [4, 4, 4]
