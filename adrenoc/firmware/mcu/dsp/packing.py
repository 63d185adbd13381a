"""Weights in the order in which the code of the DSP extension reads them."""

from __future__ import annotations

import numpy as np

_WORDS = 4
"""Widened words come in groups of so many."""


def pairs_of_run(count: int) -> list[tuple[int, int]]:
    """Which two bytes of a run each widened word holds; -1 is one that does not count."""
    pairs = []
    for four in range(0, count - 3, 4):
        pairs += [(four, four + 2), (four + 1, four + 3)]
    tail = count - count % 4
    pairs += [[], [(tail, -1)], [(tail, tail + 1)], [(tail, tail + 2), (tail + 1, -1)]][count % 4]
    return pairs


def pad_words(words: int, multiple: int = _WORDS) -> int:
    """Round words up to whole groups."""
    return -(-words // multiple) * multiple


def widened_pairs(runs: int, run: int, multiple: int = _WORDS) -> list[tuple[int, int]]:
    """Which two weights each widened word multiplies, of `runs` runs of `run` bytes each."""
    found = []
    for start in range(0, runs * run, run):
        for low, high in pairs_of_run(run):
            found.append((start + low, start + high if high >= 0 else -1))
    return found + [(-1, -1)] * (pad_words(len(found), multiple) - len(found))


def byte_rows(weights: np.ndarray, pairs: list[tuple[int, int]]) -> np.ndarray:
    """Return the bytes of each channel (rows) whose even and odd ones widen to `pairs`."""
    extended = np.concatenate([weights, np.zeros((len(weights), 1), weights.dtype)], 1)
    order = []
    for (low, high), (next_low, next_high) in zip(pairs[::2], pairs[1::2], strict=True):
        order += [low, next_low, high, next_high]
    return extended[:, order].astype(np.int8)


def interleaved_words(rows: np.ndarray, group: int) -> np.ndarray:
    """Words of four bytes: the first of each row of a group, then the second ..."""
    words = np.ascontiguousarray(rows).view("<u4")
    missing = -len(words) % group
    words = np.concatenate([words, np.zeros((missing, words.shape[1]), words.dtype)])
    return words.reshape(-1, group, words.shape[1]).transpose(0, 2, 1).reshape(-1)


def wide_words(weights: np.ndarray, pairs: list[tuple[int, int]]) -> np.ndarray:
    """Return the bytes of each channel (rows) as the words of two int16 that `pairs` names."""
    extended = np.concatenate([weights, np.zeros((len(weights), 1), weights.dtype)], 1)
    flat = [place for pair in pairs for place in pair]
    return np.ascontiguousarray(extended[:, flat].astype("<i2")).view(np.int8)
