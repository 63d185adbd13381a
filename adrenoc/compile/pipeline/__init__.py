"""A compilation as one table of stages (`stages.py`), from a model file to kernels."""

from adrenoc.compile.pipeline.run import run_stages
from adrenoc.compile.pipeline.stage import (
    Stage,
    State,
    check_order,
    imported_of,
    program_of,
    storage_of,
)
from adrenoc.compile.pipeline.stages import STAGES

__all__ = [
    "STAGES",
    "Stage",
    "State",
    "check_order",
    "imported_of",
    "program_of",
    "run_stages",
    "storage_of",
]
