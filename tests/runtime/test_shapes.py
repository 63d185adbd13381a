"""A bundle for several shapes in the runtime without Python: the same choices, the same numbers."""

from collections.abc import Callable

import numpy as np
import pytest

from adrenoc.device.run import run_bundle
from tests.runtime.programs import Finished, compile_against

Execute = Callable[..., Finished]

BAD_ARGUMENT = 21


@pytest.mark.parametrize("shape", [(1, 3, 8, 9), (1, 3, 12, 9), (3, 3, 8, 9), (4, 3, 12, 9)])
@pytest.mark.parametrize("form", ["folder", "tar"])
def test_each_shape_gives_the_numbers_of_python(
    shape, form, runtime, shapes, opencl, execute, work, tmp_path
):
    x = np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")
    x.tofile(tmp_path / "x.raw")
    expected = run_bundle(shapes, inputs={"x": x}, repeat=1, warmup=0).outputs
    path = shapes.path if form == "folder" else shapes.path.with_suffix(".tar")
    asked = "x".join(map(str, shape))
    command = [runtime.runner, path, "--opencl", opencl, "--cache", work / "shapes-cache"]
    command += ["--shape", f"x={asked}", "--input", f"x={tmp_path / 'x.raw'}"]
    for name in expected:
        command += ["--output", f"{name}={tmp_path / name}.raw"]
    execute(*command)
    for name, wanted in expected.items():
        got = np.fromfile(tmp_path / f"{name}.raw", "float32").reshape(wanted.shape)
        np.testing.assert_array_equal(got, wanted)


def test_what_no_bucket_takes(runtime, shapes, bundle, opencl, execute, work):
    options = ("--opencl", opencl, "--cache", work / "shapes-cache", "--shape")
    for asked in ("1x3x10x9", "5x3x8x9", "0x3x8x9", "3x8x9", "1x3x8x9x1"):
        command = (runtime.runner, shapes.path, *options, f"x={asked}")
        said = execute(*command, expect=BAD_ARGUMENT).err
        assert f"no bucket takes {asked}; the bundle has 1x3x8x9, 1x3x12x9, 4x3x8x9" in said
    command = (runtime.runner, bundle.path, *options, "image=1x3x8x8")
    assert "the bundle has 1x3x12x12_1x6x12x12" in execute(*command, expect=BAD_ARGUMENT).err


def test_the_c_api_tells_and_chooses_shapes(runtime, shapes, opencl, execute, work):
    program = compile_against(runtime, "shapes_program.cc", work / "shapes_program")
    execute(program, shapes.path, opencl, work / "shapes-cache")
