"""A model of each TFLite operator against LiteRT, beside `tests/tflite/status.json`."""

from __future__ import annotations

from pathlib import Path

from scripts.verifying.operators import compare_with_table
from tests.tflite import cases

TABLE = Path(cases.__file__).parent / "status.json"


def main() -> int:
    """Run the cases; the exit code is 1 where one differs from the table."""
    about = "Run a model of each TFLite operator, compare with LiteRT and the checked-in table."
    makers = {name: recipe.case for name, recipe in cases.load_recipes().items()}
    return compare_with_table(about, makers, TABLE)
