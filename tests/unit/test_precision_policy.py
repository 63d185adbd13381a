"""Policy files: written, read back, damaged, and for another model or preset."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adrenoc.base.errors import PrecisionPolicyError
from adrenoc.ir.precision_policy import PrecisionPolicy, check_policy, read_policy, write_policy

POLICY = PrecisionPolicy(
    model_file="net.onnx",
    model_sha256="ab" * 32,
    preset="mixed",
    tolerance=1e-2,
    float32_tensors=("conv1", "probabilities:0"),
    error_before=None,
    error_after=3e-4,
)


def test_a_policy_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    write_policy(POLICY, path)
    assert read_policy(path) == POLICY


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("adrenoc_precision_policy", 2, "of version 2, expected 1"),
        ("model_sha256", 7, 'seen 7 at "model_sha256", expected the SHA-256'),
        ("float32_tensors", "conv1", "expected a list of names"),
        ("float32_tensors", ["a", "a"], "expected a list of names, each once"),
        ("float32_tensors", [""], "expected a list of names"),
        ("tolerance", None, "expected a number of 0 or more"),
        ("tolerance", True, "expected a number of 0 or more"),
        ("error_after", -1.0, "expected a number of 0 or more, or null"),
        ("toleranse", 1.0, 'unknown key "toleranse".*tolerance'),
    ],
)
def test_a_damaged_policy_is_refused(tmp_path: Path, key: str, value: Any, said: str) -> None:
    path = tmp_path / "policy.json"
    write_policy(POLICY, path)
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(PrecisionPolicyError, match=said):
        read_policy(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not JSON"),
        ('{"adrenoc_precision_policy": 1, "pre', "is not JSON"),
        ("[1]", "is no precision policy"),
        ('{"preset": "mixed"}', "is no precision policy"),
        ('{"adrenoc_precision_policy": 1}', 'seen nothing at "model_file"'),
    ],
)
def test_what_is_no_policy_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "policy.json"
    path.write_text(text)
    with pytest.raises(PrecisionPolicyError, match=said):
        read_policy(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PrecisionPolicyError, match="cannot be read"):
        read_policy(tmp_path / "none.json")


def test_a_policy_of_another_model_or_preset_is_refused() -> None:
    path, model = Path("policy.json"), Path("other.onnx")
    digest = POLICY.model_sha256
    check_policy(POLICY, path, model=model, sha256=digest, preset=None)
    check_policy(POLICY, path, model=model, sha256=digest, preset="mixed")
    with pytest.raises(PrecisionPolicyError, match=r"made for net.onnx .* other.onnx has cdcd"):
        check_policy(POLICY, path, model=model, sha256="cd" * 32, preset="mixed")
    with pytest.raises(PrecisionPolicyError, match="made for the preset fp16, seen --preset mixed"):
        check_policy(
            replace(POLICY, preset="fp16"), path, model=model, sha256=digest, preset="mixed"
        )
