"""Folders of models as their makers publish them: `onnx/model*.onnx` with configurations above.

FOLDER/config.json, tokenizer.json, preprocessor_config.json
FOLDER/onnx/model.onnx, model_fp16.onnx, model_q4.onnx
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from adrenoc.base.errors import ModelNotFoundError, OptionError
from adrenoc.base.text.spelling import did_you_mean, list_first, quote_word

ENDINGS = {
    "fp32": "",
    "fp16": "_fp16",
    "int8": "_int8",
    "uint8": "_uint8",
    "q8": "_quantized",
    "q4": "_q4",
    "q4f16": "_q4f16",
    "bnb4": "_bnb4",
}
"""What is asked for -> how the name of its file ends."""
_EXPORTS = "onnx"
_MODEL = "model"
_SUFFIXES = (".onnx", ".ort", ".tflite")


def folders_beside(model: Path) -> Iterator[Path]:
    """The model's folder, and that above it where it lies in one of exports."""
    yield model.parent
    if model.absolute().parent.name == _EXPORTS:
        yield model.absolute().parent.parent


def find_beside(model: Path, name: str) -> Path | None:
    """Return the file of this name beside a model, or one folder up; None where there is none."""
    places = (folder / name for folder in folders_beside(model))
    return next((place for place in places if place.is_file()), None)


def choose_model(path: Path, dtype: str = "") -> Path:
    """Return the model file of a folder, of the numbers that are asked for, or a file as it is.

    Raises:
        ModelNotFoundError: the folder has no model.
        OptionError: it has none of such numbers, or several models; or numbers are asked for of a
            file that is named.
    """
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
        raise ModelNotFoundError(
            f"{path} is a folder without a model; expected a model file, or a folder with one "
            f"({', '.join(_SUFFIXES)}), or with {_EXPORTS}/ in it",
            hint=f"check the path: ls {quote_word(path)}",
        )
    models: dict[str, dict[str, Path]] = {}
    for file in found:
        base, kind = _split(file.stem)
        models.setdefault(base, {})[kind] = file
    if len(models) > 1 and _MODEL not in models:
        listed = list_first((file.name for file in found), between=", ")
        raise OptionError(
            f"{folder} holds {len(models)} models: {listed}; expected one, or one called {_MODEL}",
            hint=f"name one: adrenoc compile {quote_word(found[0])}",
        )
    kinds = models.get(_MODEL) or next(iter(models.values()))
    return _choose(folder, kinds, dtype)


def _is_folder(path: Path) -> bool:
    """Whether it is a folder that may be looked at; who reads the rest says why not."""
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
    """The model's name, and of which numbers it is."""
    for kind, ending in ENDINGS.items():
        if ending and stem.endswith(ending):
            return stem.removesuffix(ending), kind
    return stem, "fp32"
