"""Folders of models as their makers publish them: `onnx/model*.onnx` with configurations above.

FOLDER/config.json, tokenizer.json, preprocessor_config.json
FOLDER/onnx/model.onnx, model_fp16.onnx, model_q4.onnx

A vision-language model is in parts: onnx/embed_tokens*.onnx looks tokens up, decoder_model_merged*
or decoder* takes what it gives.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from adrenoc.base.decision import Decision
from adrenoc.base.errors import ModelNotFoundError, OptionError
from adrenoc.base.files.read import read_plain
from adrenoc.base.text.json_text import read_json
from adrenoc.base.text.spelling import did_you_mean, list_first, quote_word

_ENDINGS = {
    "_fp16": "fp16",
    "_int8": "int8",
    "_uint8": "uint8",
    "_quantized": "q8",
    "_q8": "q8",
    "_q4": "q4",
    "_q4f16": "q4f16",
    "_bnb4": "bnb4",
}
"""How the name of a file ends -> what is asked for."""
_EXPORTS = "onnx"
_MODEL = "model"
_EMBEDDING = "embed_tokens"
_DECODERS = ("decoder_model_merged", "decoder")
"""What is meant of a folder whose models are parts of one."""
_SUFFIXES = (".onnx", ".ort", ".tflite")
_MOST_BYTES = 8 << 20
"""A tokenizer_config.json lists its added tokens, of which some models have thousands."""


def folders_beside(model: Path) -> Iterator[Path]:
    """Yield the model's folder, and that above it where it lies in one of exports."""
    yield model.parent
    if model.absolute().parent.name == _EXPORTS:
        yield model.absolute().parent.parent


def find_beside(model: Path, name: str) -> Path | None:
    """Return the file of this name beside a model, or one folder up; None where there is none."""
    places = (folder / name for folder in folders_beside(model))
    return next((place for place in places if place.is_file()), None)


def read_beside(model: Path, name: str, decisions: list[Decision] | None = None) -> dict[str, Any]:
    """Return the table in a JSON file beside a model, or one folder up; empty where there is none.
    A damaged file says nothing, with a Decision where these are asked for."""
    path = find_beside(model, name)
    if path is None:
        return {}
    try:
        held = read_json(read_plain(path, _MOST_BYTES))
    except (OSError, ValueError) as error:
        if decisions is not None:
            decisions.append(Decision(subject=name, taken="left out", reason=str(error)))
        return {}
    return held if isinstance(held, dict) else {}


def table_of(table: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return the table that a table holds; an empty one where it holds something else."""
    found = table.get(key)
    return found if isinstance(found, dict) else {}


def find_embedding(model: Path) -> Path | None:
    """Return the model beside a decoder that looks its tokens up; None where there is none. Of
    several it is the one of the decoder's numbers, else of the most precise."""
    base, own = _split(model.stem)
    if base == _EMBEDDING:
        return None
    files = sorted(model.parent.glob(f"{_EMBEDDING}*.onnx"))
    split = ((_split(file.stem), file) for file in files)
    kinds = {kind: file for (name, kind), file in split if name == _EMBEDDING}
    return next((kinds[one] for one in (own, "fp32", "fp16", *kinds) if one in kinds), None)


def choose_model(path: Path, dtype: str = "") -> Path:
    """Return the model file of a folder, of the numbers that are asked for, or a file as it is.
    Raises ModelNotFoundError where the folder has no model; OptionError where it has none of such
    numbers, or several models; or numbers are asked for of a file that is named."""
    if not _is_folder(path) or (path / "manifest.json").is_file():
        if dtype:
            raise OptionError(
                f"--dtype {dtype} chooses a file of a folder; {path} is no folder of models",
                hint=f"adrenoc compile {quote_word(path.parent)} --dtype {dtype}",
            )
        return path
    folder = path / _EXPORTS if (path / _EXPORTS).is_dir() else path
    found = sorted(file for file in folder.iterdir() if file.suffix.lower() in _SUFFIXES)
    if not found:
        inner = [part.name for part in sorted(path.iterdir()) if _holds_model(part)]
        if inner:  # a pipeline, as diffusers and optimum export it
            raise ModelNotFoundError(
                f"{path} holds models in folders of their own: {', '.join(inner)}; expected one",
                hint=f"compile each: adrenoc compile {quote_word(path / inner[0])}",
            )
        raise ModelNotFoundError(
            f"{path} is a folder without a model; expected a model file, or a folder with one "
            f"({', '.join(_SUFFIXES)}), or with {_EXPORTS}/ in it",
            hint=f"check the path: ls {quote_word(path)}",
        )
    models: dict[str, dict[str, Path]] = {}
    for file in found:
        base, kind = _split(file.stem)
        models.setdefault(base, {})[kind] = file
    parts = _DECODERS if _EMBEDDING in models else ()
    usual = next((name for name in (_MODEL, *parts) if name in models), "")
    if len(models) > 1 and not usual:
        listed = list_first((file.name for file in found), between=", ")
        raise OptionError(
            f"{folder} holds {len(models)} models: {listed}; expected one, or one called {_MODEL}",
            hint=f"name one: adrenoc compile {quote_word(found[0])}",
        )
    kinds = models.get(usual) or next(iter(models.values()))
    return _choose(folder, kinds, dtype)


def _holds_model(path: Path) -> bool:
    return _is_folder(path) and any(file.suffix.lower() in _SUFFIXES for file in path.iterdir())


def _is_folder(path: Path) -> bool:
    """Return whether it is a folder that may be looked at; who reads the rest says why not."""
    try:
        return path.is_dir()
    except OSError:
        return False


def _choose(folder: Path, kinds: dict[str, Path], dtype: str) -> Path:
    if not dtype and (len(kinds) == 1 or "fp32" in kinds):
        return kinds.get("fp32") or next(iter(kinds.values()))
    if dtype in kinds:
        return kinds[dtype]
    asked = f"none of {dtype}{did_you_mean(dtype, list(kinds))}" if dtype else "none of fp32"
    raise OptionError(
        f"{folder} holds a model of {', '.join(kinds)}, and {asked}",
        hint=f"--dtype {next(iter(kinds))}",
    )


def _split(stem: str) -> tuple[str, str]:
    """Return the model's name, and of which numbers it is."""
    for ending, kind in _ENDINGS.items():
        if stem.endswith(ending):
            return stem.removesuffix(ending), kind
    return stem, "fp32"
