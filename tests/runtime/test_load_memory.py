"""What a load takes beside the device's memory: constants are in memory once, in the device's.

The software device's memory is this machine's, so that a process has each constant there; the file
that it came from counts as the process's too, as long as its pages are held.
"""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from adrenoc.cli.main import main
from tests.commands import run_program
from tests.models import graph, write

KIB = 1024
ROWS = {"small": 16, "large": 1 << 17}
WIDTH = 256
BYTES = ROWS["large"] * WIDTH * 4


@pytest.mark.nightly
@pytest.mark.parametrize("suffix", [".adrenoc", ".tar"])
def test_a_constant_is_in_memory_once(runtime, opencl, tmp_path, suffix):
    peaks = {}
    for name, rows in ROWS.items():
        table = np.ones((rows, WIDTH), np.float32)
        nodes = "index = Cast <to = 7>(at) row = Gather(table, index)"
        made = graph(nodes, {"at": (3,)}, ["row"], {"table": table})
        model = write(made, tmp_path, f"{name}.onnx")
        bundle = tmp_path / f"{name}{suffix}"
        command = ["compile", str(model), "--device", "host", "--preset", "fp32"]
        assert main([*command, "--output", str(bundle)]) == 0
        # The driver's compiler has tens of MiB more in some runs than in others.
        peaks[name] = min(
            measure_peak_bytes(runtime.runner, bundle, "--opencl", opencl) for _ in range(3)
        )
    # With the file's pages held, it were twice the constant.
    assert 0.8 * BYTES < peaks["large"] - peaks["small"] < 1.5 * BYTES


def measure_peak_bytes(*command: object) -> int:
    """The most memory that a program had.

    Another one starts it, which is small: a program's peak counts what had been before it in its
    process, here all that pytest holds.
    """
    folder = Path(sys.prefix) / "lib"
    environment = {"LD_LIBRARY_PATH": str(folder)}
    environment["OCL_ICD_FILENAMES"] = str(folder / "libintelocl.so")
    measure = (
        "import resource, subprocess, sys\n"
        "subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    done = run_program(
        [sys.executable, "-c", measure, *map(str, command)],
        check=True,
        env={**os.environ, **environment},
    )
    return int(done.stdout) * KIB
