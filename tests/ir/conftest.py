"""Goldens: `golden(text)` compares with the file of the test that calls it."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

_GOLDENS = Path(__file__).resolve().parents[1] / "golden"


@pytest.fixture
def golden(request) -> Callable[[str], None]:
    """Compare a text with `tests/golden/<test file>/<test>.txt`."""
    folder = _GOLDENS / Path(request.node.path).stem
    path = folder / (re.sub(r"[^\w.-]+", "_", request.node.name) + ".txt")

    def compare(text: str) -> None:
        if request.config.getoption("--update-golden"):
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"no golden {path.name}: run pytest --update-golden"
        assert text == path.read_text()

    return compare
