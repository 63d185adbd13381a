"""What a Relax module computes by TVM's own pipeline on the CPU: a reference for tests."""

from collections.abc import Sequence

import numpy as np
import tvm
from tvm import relax


def run_on_cpu(module: tvm.IRModule, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What `main` computes.

    It runs once: LLVM's optimisations, and code that looks at each argument of each function,
    take longer than they save.
    """
    target = tvm.target.Target({"kind": "llvm", "opt-level": 0})
    with tvm.transform.PassContext(config={"tirx.disable_assert": True}):
        built = relax.build(module, target)
    result = relax.VirtualMachine(built, tvm.cpu())["main"](*map(tvm.runtime.tensor, arrays))
    fields = [result] if hasattr(result, "numpy") else list(result)
    return [field.numpy() for field in fields]
