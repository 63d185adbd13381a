"""What a decoder takes beside its tokens: files, and what encoders make of files before it.

Each bundle takes the files that are for its inputs, what the ones before it took from files by the
same names, and what they gave under the name of an input; or under the name that exporters give
what becomes one, as an encoder's mask becomes its decoder's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from adrenoc.base.errors import InputError
from adrenoc.base.text.spelling import quote_word

if TYPE_CHECKING:
    import numpy as np

    from adrenoc.bundle.bundle import Bundle
    from adrenoc.bundle.chat import Pictures
    from adrenoc.bundle.manifest import TensorSpec
    from adrenoc.check.inputs import InputFile
    from adrenoc.device.place import RunPlace

    Arrays = dict[str, np.ndarray]

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
        self._given: Arrays = {}

    def give(self, outputs: Mapping[str, np.ndarray]) -> None:
        """Have what a bundle has made."""
        self._given.update(outputs)

    def take(self, bundle: Bundle, specs: Sequence[TensorSpec], *, is_last: bool) -> Arrays:
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
    """Run encoders, each on what there is by then.

    An encoder after the first may be a decoder's first call, of which only what it makes of the one
    before it counts: its tokens are the prompt's. Raises InputError where an input is not there, or
    a file does not fit.
    """
    import numpy as np

    from adrenoc.bundle.bundle import open_bundle
    from adrenoc.bundle.decoder_names import TOKENS
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
