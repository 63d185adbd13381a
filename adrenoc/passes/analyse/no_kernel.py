"""Nodes that no family has a kernel for: functions of the CPU, copies to and from it, regions."""

from __future__ import annotations

from adrenoc.passes.analyse.cpu_nodes import CPU, TO_CPU, TO_GPU
from adrenoc.passes.analyse.region_nodes import ALLOC, CLML

NO_KERNEL = frozenset((CPU, TO_CPU, TO_GPU, CLML, ALLOC))
"""By the name of the operator in the planning graph."""
