"""A model that is freed gives the device all back: counted, not believed."""

import pytest

from tests.runtime.programs import compile_against

# Of the context that lives as long as the process: itself and its queue.
KEPT = 2


@pytest.mark.parametrize("name", ["bundle", "shapes"])
@pytest.mark.parametrize("device", ["stub plain", "stub buffers", "stub recordable"])
def test_all_is_released_whatever_failed(
    name, device, runtime, bundle, shapes, stub, execute, tmp_path
):
    program = compile_against(runtime, "free_program.cc", tmp_path / "free_program", "-ldl")
    path = {"bundle": bundle, "shapes": shapes}[name].path
    told = execute(program, path, stub, device).json()
    assert told["kept"] == KEPT
    assert told["cycles"] == 14
    # Calls that the model does not make cannot fail.
    assert told["failed"] > 40
    assert told["trimmed"] > 0
