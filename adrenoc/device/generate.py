"""Generate tokens by a bundle of a decoder: its entry points share constants and caches.

A prompt goes through the entry points of several tokens, all but its last token, which the one of
one token takes as it takes each token after it.  How many rows of the caches are there is a number
that kernels read, so that the same launches serve every token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from adrenoc.bundle.buckets import open_buckets
from adrenoc.bundle.bundle import Bundle
from adrenoc.bundle.manifest import TensorSpec
from adrenoc.device.place import LocalPlace, start_build, upload
from adrenoc.device.result import ProgramOptions
from adrenoc.errors import InputError

if TYPE_CHECKING:
    import numpy as np

TOKENS, PAST_LENGTH, NEXT_TOKEN, LOGITS = "input_ids", "past_length", "next_token", "logits"
"""Inputs and outputs of such a bundle, by name."""


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """One entry point, bound to its inputs, the constants and the caches."""

    tokens: int
    run: Any
    given: dict[str, Any]
    """Input -> its tensor on the device."""
    outputs: tuple[str, ...]
    machine: Any
    """What has to live as long."""


class Decoder:
    """A loaded decoder, and how many tokens it has taken in."""

    def __init__(
        self, place: LocalPlace, bundle: Bundle, programs: ProgramOptions | None = None
    ) -> None:
        check_is_decoder(bundle)
        self._place, self._device = place, place.device()
        self._constants: dict[str, Any] = {}
        specs = {spec.name: spec for spec in bundle.manifest.inputs}
        self._states = {name: self._make_zeros(specs[name]) for name in bundle.manifest.states}
        self.rows = specs[bundle.manifest.states[0]].shape[2]
        self.length = 0
        """Tokens that the caches hold."""
        entries = [self._load(part, programs) for part in open_buckets(bundle)]
        self._entries = sorted(entries, key=lambda entry: entry.tokens)

    def take_in(self, tokens: Sequence[int]) -> None:
        """Fill the caches with tokens, in as few runs as the entry points allow.

        Raises:
            InputError: they have no room for so many.
        """
        import numpy as np

        self._check_room(len(tokens))
        left = list(tokens)
        while left:
            entry = next((e for e in self._entries if e.tokens >= len(left)), self._entries[-1])
            now, left = left[: entry.tokens], left[entry.tokens :]
            filled = np.zeros((1, entry.tokens), np.int64)
            filled[0, : len(now)] = now
            self._run(entry, filled)
            self.length += len(now)

    def step(self, token: int, *, logits: bool = False) -> tuple[int, np.ndarray | None]:
        """Take in one token; the most likely next one, and on request what it was picked of.

        Raises:
            InputError: the caches are full.
        """
        import numpy as np

        self._check_room(1)
        result = self._run(self._entries[0], np.array([[token]], np.int64))
        self.length += 1
        row = result[LOGITS].numpy().reshape(-1) if logits else None
        return int(result[NEXT_TOKEN].numpy().reshape(-1)[0]), row

    def rewind(self, length: int) -> None:
        """Forget all but the first tokens.

        Raises:
            InputError: there are fewer.
        """
        if not 0 <= length <= self.length:
            raise InputError(
                f"rewind to {length} tokens, expected 0 to the {self.length} that are there",
                hint="adrenoc run BUNDLE --prompt-ids 1,2,3 begins anew",
            )
        self.length = length

    def read_cache(self, name: str) -> np.ndarray:
        """The rows of a cache that are there."""
        held: np.ndarray = self._states[name].numpy()[:, :, : self.length]
        return held

    def _check_room(self, count: int) -> None:
        if self.length + count > self.rows:
            raise InputError(
                f"the context is full: it has {self.rows} rows, {self.length} of them hold tokens, "
                f"and there is no room for {count} more",
                hint=f"adrenoc compile MODEL --context {2 * self.rows}",
            )

    def _run(self, entry: _Entry, tokens: np.ndarray) -> dict[str, Any]:
        import numpy as np

        entry.given[TOKENS].copyfrom(tokens)
        entry.given[PAST_LENGTH].copyfrom(np.array([self.length], np.int32))
        result = entry.run()
        self._device.sync()
        fields = [result] if hasattr(result, "numpy") else list(result)
        return dict(zip(entry.outputs, fields, strict=True))

    def _load(self, part: Bundle, programs: ProgramOptions | None) -> _Entry:
        from tvm import relax

        place, manifest = self._place, part.manifest
        module = place.load(part)
        with start_build(place, part, module, programs) as wait_for_kernels:
            machine = relax.VirtualMachine(module, [self._device, place.cpu()])
            wait_for_kernels()
        given = {
            spec.name: self._states[spec.name]
            if spec.name in self._states
            else self._make_zeros(spec)
            for spec in manifest.inputs
        }
        arguments = [*given.values(), *self._bring_constants(part)]
        bind = place.function("adrenoc.opencl.bind_run")
        run: Any = partial(machine["main"], *arguments)
        if bind is not None:
            bound = bind(machine.module, "main", place.number, "best", *arguments)
            run = place.look_up(bound, "run")
        return _Entry(
            tokens=next(spec.shape[-1] for spec in manifest.inputs if spec.name == TOKENS),
            run=run,
            given=given,
            outputs=tuple(spec.name for spec in manifest.outputs),
            machine=machine,
        )

    def _bring_constants(self, part: Bundle) -> list[Any]:
        """The constants of an entry point; what another one has brought is there already."""
        missing = [s for s in part.manifest.params if s.name not in self._constants]
        arrays = part.params() if missing else {}
        for spec in missing:
            self._constants[spec.name] = upload(spec, arrays[spec.name], self._device)
        return [self._constants[spec.name] for spec in part.manifest.params]

    def _make_zeros(self, spec: TensorSpec) -> Any:
        import numpy as np
        import tvm

        return tvm.runtime.tensor(np.zeros(spec.shape, spec.dtype), self._device)


def check_is_decoder(bundle: Bundle) -> None:
    """Refuse a bundle that generates no tokens.

    Raises:
        InputError: it has no caches, or not the inputs of a decoder.
    """
    names = {spec.name for spec in bundle.manifest.inputs}
    if not bundle.manifest.states or not {TOKENS, PAST_LENGTH} <= names:
        raise InputError(
            f"{bundle.path} is no decoder with caches: its inputs are {', '.join(sorted(names))}",
            hint=f"adrenoc run {bundle.path}",
        )
    others = sorted(names.difference((TOKENS, PAST_LENGTH, *bundle.manifest.states)))
    if others:
        raise InputError(
            f"{bundle.path} also takes {', '.join(others)}, which nobody gives while tokens are "
            "generated",
            hint=f"adrenoc run {bundle.path} --input {others[0]}=FILE runs one step",
        )
