"""ONNX's own node tests on the software OpenCL device, beside `tests/onnx_backend/status.json`."""

from __future__ import annotations

from scripts.verifying.operators import compare_with_table
from tests.onnx_backend.cases import load_cases
from tests.onnx_backend.table import TABLE


def main() -> int:
    """Run the cases; the exit code is 1 where one differs from the table."""
    about = "Run ONNX's node tests and compare with the checked-in table."
    makers = {name: lambda case=case: case for name, case in load_cases().items()}
    return compare_with_table(about, makers, TABLE)
