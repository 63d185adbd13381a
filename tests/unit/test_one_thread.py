"""A command's products of NumPy start no threads, unless somebody asks for some."""

import os
import sys

import pytest

from tests.commands import run_program

_PRODUCT = """
import os, sys
os.sched_setaffinity(0, range(os.cpu_count()))  # a worker of the tests has one core
from adrenoc.cli.main import main
sys.argv = ["adrenoc", "targets"]
main()
import numpy as np
matrix = np.ones((512, 512), np.float32)
assert (matrix @ matrix).sum() == 512.0**3
print(len(os.listdir("/proc/self/task")))
"""


@pytest.mark.skipif(os.cpu_count() == 1, reason="one core has one thread anyway")
@pytest.mark.parametrize(("asked", "threads"), [(None, 1), ("2", 2)])
def test_products_are_calculated_in_as_many_threads_as_are_asked_for(asked, threads):
    variables = {name: value for name, value in os.environ.items() if "NUM_THREADS" not in name}
    if asked is not None:
        variables["OPENBLAS_NUM_THREADS"] = asked
    done = run_program([sys.executable, "-c", _PRODUCT], check=True, env=variables)
    assert int(done.stdout.splitlines()[-1]) == threads
