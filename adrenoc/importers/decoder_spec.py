"""What a decoder keeps from token to token: its caches, its recurrent states, and their form."""

from __future__ import annotations

from dataclasses import dataclass

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

    `context` (as the file `source` says) is 0 and `ends`, the tokens after which it has no more to
    say, are none where no configuration lies beside the model.  Where the file fixes them, `rows`
    are those that its caches have and `lengths` the tokens of a prompt that it has calls for.
    `slides` says that caches of a window may have fewer rows than others.  `merged` is of files
    with a graph for a first call beside that for a past; `single` of those whose runs take one
    token.  `streams` is how many positions a token has where there are more than one.
    """

    caches: tuple[CacheSpec, ...]
    recurrent: tuple[StateSpec, ...] = ()
    slides: bool = False
    masked: bool
    positions: bool
    streams: int = 1
    context: int
    merged: bool = False
    single: bool = False
    ends: tuple[int, ...] = ()
    source: str = GENAI_CONFIG
    rows: int = 0
    lengths: tuple[int, ...] = ()
