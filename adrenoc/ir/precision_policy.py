"""Precision policies: which tensors of one model stay in float32, and why that is enough.

`adrenoc check-accuracy` writes them, `adrenoc compile --precision-policy` takes them.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from adrenoc.base.errors import PrecisionPolicyError
from adrenoc.base.files.outputs import write_atomically
from adrenoc.base.files.read import read_plain
from adrenoc.base.text.json_text import RecordReader, read_json
from adrenoc.base.text.spelling import quote_word

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

    def wrong(where: str, what: str) -> PrecisionPolicyError:
        return PrecisionPolicyError(f"{where} {what}", hint=_NEW)

    try:
        data = read_json(read_plain(path))
    except OSError as error:
        raise wrong(f"the precision policy {path}", f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise wrong(str(path), f"is not JSON: {error}") from error
    if not isinstance(data, dict) or _MARK not in data:
        raise wrong(str(path), f'is no precision policy: expected an object with the key "{_MARK}"')
    version = data.pop(_MARK)
    if version != VERSION:
        what = f"is a precision policy of version {version!r}, expected {VERSION}"
        raise wrong(str(path), what)
    policy: PrecisionPolicy = RecordReader(wrong).read(PrecisionPolicy, data, str(path))
    tensors = policy.float32_tensors
    if len(set(tensors)) < len(tensors) or not all(tensors):
        raise wrong(f"{path}: float32_tensors", f"is {list(tensors)}, expected names, each once")
    for key in ("tolerance", "error_before", "error_after"):
        if (value := getattr(policy, key) or 0.0) < 0:
            raise wrong(f"{path}: {key}", f"is {value:g}, expected 0 or more")
    return policy


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
