"""States of models that are no decoders, through the C API: they go on from run to run."""

from adrenoc.cli.main import main
from tests.models import write_stepper
from tests.runtime.programs import compile_against

SHAPE = (1, 1, 8)


def test_a_state_goes_on(runtime, opencl, execute, tmp_path):
    model = write_stepper(tmp_path, SHAPE)
    bundle = tmp_path / "step.adrenoc"
    command = ["compile", str(model), "--device", "host", "--preset", "fp32"]
    assert main([*command, "--state", "h=hn", "-o", str(bundle)]) == 0
    program = compile_against(runtime, "states_program.cc", tmp_path / "states")
    execute(program, bundle, opencl, tmp_path / "cache")
