"""Precision policies: which tensors of one model stay in float32, and why that is enough.

`adrenoc check-accuracy` writes them, `adrenoc compile --precision-policy` takes them.
"""

import json
import math
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from adrenoc.base.errors import PrecisionPolicyError
from adrenoc.base.files.outputs import write_atomically
from adrenoc.base.files.read import read_plain
from adrenoc.base.text.json_text import read_json
from adrenoc.base.text.spelling import did_you_mean, quote_word

VERSION = 1
_MARK = "adrenoc_precision_policy"
_NEW = "make it again: adrenoc check-accuracy MODEL -o POLICY.json"


@dataclass(frozen=True, kw_only=True)
class PrecisionPolicy:
    """Tensors of the model with this digest to compute and store in float32, beside `preset`.
    `error_before` and `error_after` are the largest error over the range of an output, without and
    with the policy; None where an output was not finite."""

    model_file: str
    model_sha256: str
    preset: str
    tolerance: float
    float32_tensors: tuple[str, ...]
    error_before: float | None
    error_after: float | None


def write_policy(policy: PrecisionPolicy, path: Path) -> None:
    """Write a policy as JSON."""
    text = json.dumps({_MARK: VERSION, **asdict(policy)}, indent=2, allow_nan=False)
    write_atomically(path, (text + "\n").encode())


def read_policy(path: Path) -> PrecisionPolicy:
    """Read a policy."""
    try:
        data = read_json(read_plain(path))
    except OSError as error:
        raise PrecisionPolicyError(
            f"the precision policy {path} cannot be read: {error.strerror}", hint=_NEW
        ) from error
    except ValueError as error:
        raise PrecisionPolicyError(f"{path} is not JSON: {error}", hint=_NEW) from error
    if not isinstance(data, dict) or _MARK not in data:
        raise PrecisionPolicyError(
            f'{path} is no precision policy: expected an object with the key "{_MARK}"', hint=_NEW
        )
    version = data.pop(_MARK)
    if version != VERSION:
        raise PrecisionPolicyError(
            f"{path} is a precision policy of version {version!r}, expected {VERSION}", hint=_NEW
        )
    known = [field.name for field in fields(PrecisionPolicy)]
    for key in data:
        if key not in known:
            raise PrecisionPolicyError(
                f'{path}: unknown key "{key}"{did_you_mean(key, known)}', hint=_NEW
            )
    for key in known:
        if key not in data or not _fits(key, data[key]):
            seen = repr(data[key]) if key in data else "nothing"
            raise PrecisionPolicyError(
                f'{path}: seen {seen} at "{key}", expected {_EXPECTED[key][1]}', hint=_NEW
            )
    return PrecisionPolicy(**{**data, "float32_tensors": tuple(data["float32_tensors"])})


def check_policy(
    policy: PrecisionPolicy, path: Path, *, model: Path, sha256: str, preset: str | None
) -> None:
    """Refuse a policy that was made for another model or preset; `preset` None means any."""
    if policy.model_sha256 != sha256:
        raise PrecisionPolicyError(
            f"{path} was made for {policy.model_file} with SHA-256 {policy.model_sha256[:12]}; "
            f"{model} has {sha256[:12]}",
            hint=f"adrenoc check-accuracy {quote_word(model)} -o {quote_word(path)}",
        )
    if preset is not None and preset != policy.preset:
        raise PrecisionPolicyError(
            f"{path} was made for the preset {policy.preset}, seen --preset {preset}",
            hint=f"adrenoc check-accuracy {quote_word(model)} --preset {preset} "
            f"-o {quote_word(path)}",
        )


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value)) and len(set(value)) == len(value)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value >= 0


def _is_error(value: Any) -> bool:
    return value is None or _is_number(value)


_EXPECTED = {
    "model_file": (_is_text, "the name of a model file"),
    "model_sha256": (_is_text, "the SHA-256 of a model"),
    "preset": (_is_text, "the name of a preset"),
    "tolerance": (_is_number, "a number of 0 or more"),
    "float32_tensors": (_is_names, "a list of names, each once"),
    "error_before": (_is_error, "a number of 0 or more, or null"),
    "error_after": (_is_error, "a number of 0 or more, or null"),
}


def _fits(key: str, value: Any) -> bool:
    return _EXPECTED[key][0](value)
