"""What of TVM a compilation loads, and that the rest is there for who asks."""

import sys

from tests.commands import run_program

_LOAD = """
import sys
from adrenoc.compile.load_tvm import load_tvm
load_tvm()
import adrenoc.compile.compiler, adrenoc.importers.onnx.importer
"""


def _run(text: str) -> str:
    done = run_program([sys.executable, "-c", _LOAD + text], check=True)
    return done.stdout


def test_a_compilation_loads_no_tuner_and_no_schedules_of_gpus():
    parts = _run("print('\\n'.join(sys.modules))").split()
    assert "tvm.relax" in parts
    for package in ("tvm.s_tir.meta_schedule", "tvm.s_tir.dlight", "tvm.relax.training"):
        assert package in parts
        assert not [part for part in parts if part.startswith(f"{package}.")]


def test_what_is_put_off_is_loaded_by_who_asks():
    text = """
import tvm
from tvm import s_tir
from tvm.relax.training import SetupTrainer
print(s_tir.dlight.gpu.Matmul.__name__, tvm.s_tir.meta_schedule.tune_tir.__name__)
"""
    assert _run(text) == "Matmul tune_tir\n"
