"""A decoder in TFLite over some tokens, by LiteRT: one call a token, its caches handed on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from adrenoc.base.errors import ModelFormatError
from adrenoc.check.runtimes import open_interpreter
from adrenoc.importers.tflite.decoder.roles import (
    DECODE,
    LOGITS,
    MASKS,
    POSITIONS,
    TOKENS,
    mask_values,
)


def run_tokens(model: Path, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the logits after each of `inputs["tokens"]`, [tokens, vocabulary].

    Raises:
        DependencyError, ModelFormatError: see `open_interpreter`.
    """
    run = open_interpreter(model, {}).get_signature_runner(DECODE)
    details = run.get_input_details()
    known = (*TOKENS, *POSITIONS, *MASKS)
    caches = {
        name: np.zeros(told["shape"], told["dtype"])
        for name, told in details.items()
        if name not in known
    }
    rows = []
    for position, token in enumerate(inputs["tokens"]):
        given = {}
        for name, told in details.items():
            shape, dtype = tuple(int(extent) for extent in told["shape"]), told["dtype"]
            if name in TOKENS:
                given[name] = np.full(shape, token, dtype)
            elif name in POSITIONS:
                given[name] = np.full(shape, position, dtype)
            elif name in MASKS:
                given[name] = mask_values(np.array([position]), shape, np.dtype(dtype).name)
        try:
            found = run(**given, **caches)
        except (RuntimeError, ValueError) as error:
            raise ModelFormatError(
                f"LiteRT cannot run {model}: {error}", hint="convert or download the model again"
            ) from error
        caches = {name: found[name] for name in caches}
        rows.append(found[LOGITS].reshape(-1))
    return {LOGITS: np.stack(rows)}
