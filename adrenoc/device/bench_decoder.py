"""What a decoder takes on a device: prompts, the first token, and each further one."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from adrenoc.device.generate import Decoder, Wish
from adrenoc.device.gpu_state import GpuState, clock_notes, read_gpu_state
from adrenoc.device.place import Place
from adrenoc.device.result import LaunchReport

if TYPE_CHECKING:
    from collections.abc import Callable

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
    decoder: Decoder, place: Place, lengths: Sequence[int], told: Callable[[str], None]
) -> DecoderBench:
    """Time a loaded decoder; `lengths` are the tokens of its entry points, `told` hears how far.

    Raises:
        RuntimeError, ValueError, MemoryError: what TVM and the OpenCL runtime raise.
    """
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
        memory_bytes=None if stats is None else int(json.loads(stats(place.number))["peak_bytes"]),
        launching=decoder.launching(),
        gpu=tuple(state for state in states if state.is_known),
        notes=clock_notes(states, place.facts),
    )


def time_prompt_ms(decoder: Decoder, device: Any, length: int) -> float:
    """Milliseconds of a prompt of `length` tokens in an empty context: the median, the first apart.

    Raises:
        RuntimeError, ValueError, MemoryError: what TVM and the OpenCL runtime raise.
    """
    times = []
    for _ in range(_REPEATS + 1):
        decoder.rewind(0)
        device.sync()
        begun = time.perf_counter()
        decoder.take_in([_SEED_TOKEN] * length)
        device.sync()
        times.append((time.perf_counter() - begun) * 1000)
    return statistics.median(times[1:])


def _time_first(decoder: Decoder, length: int) -> float:
    decoder.rewind(0)
    begun = time.perf_counter()
    decoder.take_in([_SEED_TOKEN] * length)
    decoder.step(_SEED_TOKEN)
    return (time.perf_counter() - begun) * 1000


def time_token_ms(decoder: Decoder, context: int, count: int) -> float:
    """Milliseconds of one of `count` tokens after `context` others.

    The `WARM_STEPS` before them, which note and try the ways to launch, are not counted.

    Raises:
        RuntimeError, ValueError, MemoryError: what TVM and the OpenCL runtime raise.
    """
    decoder.rewind(min(context, decoder.length))
    decoder.take_in([_SEED_TOKEN] * (context - decoder.length))
    _make_tokens(decoder, WARM_STEPS)
    begun = time.perf_counter()
    made = _make_tokens(decoder, count)
    return (time.perf_counter() - begun) * 1000 / made


def _make_tokens(decoder: Decoder, count: int) -> int:
    return sum(map(len, decoder.generate(_SEED_TOKEN, Wish(most=count))))
