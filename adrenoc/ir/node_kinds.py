"""The kinds of node that no operator's record describes: what is done without a kernel, and joins.

A node's `op` is one of these, or the name of an `Operator`.  Passes ask the node (`Node.is_on_cpu`,
`Node.has_kernel` and their like), not for these names.
"""

from __future__ import annotations

CPU = "cpu"
"""A function of the CPU; it has one output, and its `func` takes the inputs, then the output."""

TO_CPU = "to_cpu"
"""A copy from the GPU's memory, row-major, to the CPU's."""

TO_GPU = "to_gpu"
"""A copy back."""

CLML = "clml"
"""A region of OpenCL ML; `attrs` hold its `symbol` and its `results`, the first one its output."""

ALLOC = "alloc"
"""Memory that a region will write."""

CONCAT = "concat"
"""A concatenation that no other map was fused with, for it may need no kernel."""

NO_KERNEL = frozenset((CPU, TO_CPU, TO_GPU, CLML, ALLOC))
"""What no family has a kernel for."""
