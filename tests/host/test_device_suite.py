"""Every kernel family in every memory is right on the implementation of OpenCL that tests run on.

The cases are those of `adrenoc device verify`; other tests of this folder ask for more, of fewer.
"""

from dataclasses import replace

import pytest

from adrenoc.device.place import pick_device
from adrenoc.device.run import run_bundle
from adrenoc.lab.prove.examine import judge
from adrenoc.lab.prove.suite import CASES, all_suites, make_suite, that_compiles
from adrenoc.target.target import Target, load_target

SUITES = {suite.name: suite for suite in all_suites(CASES, half_type=True)}
WITHOUT_LOCAL = (
    *("conv2d", "depthwise_conv2d", "conv2d_transpose", "conv1d_transpose", "separable_conv2d"),
    *("gemv", "layer_norm", "softmax", "cached_attention"),
)
"""Families whose kernels usually share local memory; the last is refused without it."""


@pytest.mark.every_opencl
@pytest.mark.parametrize(
    "name",
    [pytest.param("fp32, textures", marks=pytest.mark.nightly), "fp32, buffers", "mixed, textures"],
)
def test_every_family(request, device, tmp_path, name):
    suite, target = SUITES[name], load_target("host")
    _, facts = pick_device("")
    if "cl_khr_fp16" not in facts["extensions"]:
        target = _without(target, fp16=False)
    made = make_suite(suite, target, tmp_path)
    outputs = run_bundle(made.bundle, inputs=made.inputs, repeat=1, warmup=0).outputs
    wrong = {(one.family, one.case): str(one) for one in judge(made, outputs)}
    if request.config.getoption("--opencl"):
        # OpenCL lets drivers cut what they store as halves, as Mesa's rusticl and NVIDIA's do.
        wrong.pop(("max_pool2d", "what halves round"), None)
    assert not wrong, "\n".join(wrong.values())


def _without(target: Target, **limits: object) -> Target:
    limited = replace(target.limits, **limits)
    return replace(target, gpu=replace(target.gpu, limits=limited))


@pytest.mark.nightly
def test_families_without_local_memory(device, tmp_path):
    """What a device whose barriers do not wait gets: no thread waits for another."""
    target = _without(load_target("host"), local_mem_bytes=0)
    suite = SUITES["fp32, textures"]
    cases = tuple(case for case in suite.cases if case.family in WITHOUT_LOCAL)
    made = make_suite(that_compiles(replace(suite, cases=cases), target), target, tmp_path)
    assert not [k.name for k in made.bundle.kernels() if "barrier(" in k.source]
    outputs = run_bundle(made.bundle, inputs=made.inputs, repeat=1, warmup=0).outputs
    wrong = [str(one) for one in judge(made, outputs)]
    assert not wrong, "\n".join(wrong)
