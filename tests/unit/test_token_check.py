"""What is compared of generated tokens."""

from pathlib import Path

import pytest

from adrenoc.base.errors import InputError
from adrenoc.check.generation import check_tokens


def test_a_prompt_that_fills_the_context_leaves_nothing_to_compare() -> None:
    with pytest.raises(InputError, match="prompt's 3 tokens fill the context"):
        check_tokens(Path("m.onnx"), [1, 2, 3], [], [], tolerance=1e-3)
