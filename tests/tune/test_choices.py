"""Which schedule a kernel gets: candidates, the gate, the log."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from adrenoc.base.reporter import SilentReporter
from adrenoc.compile.pipeline import State, run_stages
from adrenoc.ir.options import CompileOptions
from adrenoc.ir.program import Program, ScheduleChoice
from adrenoc.ir.tuning_log import LogWriter, Status
from adrenoc.kernels.families.shared.conv_geometry import ConvTile
from adrenoc.kernels.families.shared.schedule import actions_of, is_of
from adrenoc.lab.tune.search import features
from adrenoc.lab.tune.tasks import plan_model
from adrenoc.target.target import load_target
from tests.models import graph
from tests.tune.trials import trial


def _model(names: str = "abc", channels: int = 16) -> onnx.ModelProto:
    """A dilated convolution, which stays one kernel whatever is estimated, and what follows it."""
    weights = np.random.default_rng(1).standard_normal((16, channels, 3, 3))
    conv, relu, weight = names
    nodes = (
        f"{conv} = Conv <dilations = [2, 2], pads = [2, 2, 2, 2]>(x, {weight}) "
        f"{relu} = Relu({conv}) p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]>({relu}) "
        "y = Softmax <axis = 1>(p)"
    )
    held = {weight: weights.astype(np.float32)}
    return graph(nodes, {"x": [1, channels, 16, 16]}, ["y"], held)


def _program(folder: Path, model: onnx.ModelProto, log: Path | None = None) -> Program:
    path = folder / "model.onnx"
    onnx.save(model, path)
    state, _ = run_stages(
        State(
            model=path,
            target=load_target("host:a750"),
            options=CompileOptions(tuning_log=str(log) if log else None),
        ),
        reporter=SilentReporter(),
        stop_after="lower",
    )
    assert state.program is not None
    return state.program


def _digests(program: Program) -> dict[str, str]:
    return {choice.family: choice.digest for choice in program.choices.values()}


def _choice(program: Program, family: str = "conv2d") -> ScheduleChoice:
    (found,) = [choice for choice in program.choices.values() if choice.family == family]
    return found


def test_kernels_are_tuned_as_if_their_tensors_lay_alone(tmp_path):
    """What a candidate writes is compared whole, so it may not be a part of something else."""
    weights = np.ones((8, 8, 3, 3), np.float32)
    nodes = (
        "a = Conv <pads = [1, 1, 1, 1]>(x, w) b = Conv <pads = [1, 1, 1, 1]>(x, w) "
        "c = Concat <axis = 1>(a, b) y = MaxPool <kernel_shape = [2, 2]>(c)"
    )
    path = tmp_path / "model.onnx"
    onnx.save(graph(nodes, {"x": [1, 8, 16, 16]}, ["y"], {"w": weights}), path)
    planned = plan_model(
        path, target=load_target("host:a750"), options=CompileOptions(), reporter=SilentReporter()
    )
    (task,) = [task for task in planned.tasks if task.family == "conv2d"]
    assert task.calls == 2
    call, context = planned.call(task, task.candidates[0])
    assert context.graph.operand(call.arguments[-1]).physical == (2, 16, 16, 4)


def test_every_kernel_has_a_choice_of_schedules(tmp_path):
    program = _program(tmp_path, _model())
    families = {choice.family for choice in program.choices.values()}
    assert {"conv2d", "max_pool2d", "softmax", "layout"} <= families
    for choice in program.choices.values():
        assert len(choice.candidates) > 1, choice.family
        assert choice.tile == choice.untuned
        assert not choice.tuned


def test_a_joined_pair_has_schedules_of_its_own(tmp_path):
    """A depthwise convolution that the 1x1 convolution after it computes."""
    sizes = {"taps": (16, 1, 3, 3), "w": (8, 16, 1, 1)}
    nodes = (
        "r = Relu(x) d = Conv <group = 16, pads = [1, 1, 1, 1]>(r, taps) p = Conv(d, w) "
        "y = Softmax <axis = 1>(p)"
    )
    weights = {name: np.ones(size, np.float32) for name, size in sizes.items()}
    path = tmp_path / "model.onnx"
    onnx.save(graph(nodes, {"x": [1, 16, 28, 28]}, ["y"], weights), path)
    target = load_target("host:a750")
    options = CompileOptions()
    planned = plan_model(path, target=target, options=options, reporter=SilentReporter())
    (task,) = [task for task in planned.tasks if task.family == "separable_conv2d"]
    assert np.isfinite(features(task)).all()
    for tile in task.candidates[:: len(task.candidates) // 4]:
        call, _ = planned.call(task, tile)
        assert call.builder.launch.work_group == tile.work_group


def test_names_do_not_count_and_shapes_do(tmp_path):
    first = _digests(_program(tmp_path, _model("abc")))
    assert _digests(_program(tmp_path, _model("qrk"))) == first
    assert _digests(_program(tmp_path, _model(channels=12)))["conv2d"] != first["conv2d"]


@pytest.fixture
def conv_log(tmp_path) -> tuple[Path, dict[str, object]]:
    """A log in which a schedule other than the estimate's is the fastest."""
    choice = _choice(_program(tmp_path, _model()))
    other = next(t for t in choice.candidates if t != choice.untuned)
    path = tmp_path / "log.jsonl"
    writer = LogWriter(path)
    writer.append(
        trial(choice.digest, family="conv2d", actions=actions_of(other), gpu="host", median_us=1.0)
    )
    writer.close()
    return path, actions_of(other)


def test_the_log_picks(tmp_path, conv_log):
    path, actions = conv_log
    program = _program(tmp_path, _model(), path)
    choice = _choice(program)
    assert choice.tuned
    assert actions_of(choice.tile) == actions
    (kernel,) = [k for k in program.kernels.values() if k.family == "conv2d"]
    assert kernel.choice is choice


def test_an_older_log_does_not_name_newer_actions():
    new = ConvTile(pixels=2, out_blocks=2, work_group=(8, 4, 1))
    old = {"pixels": 2, "out_blocks": 2, "route": "texture", "work_group": [8, 4, 1]}
    assert is_of(new, old)
    assert not is_of(replace(new, bands=2), old)
    assert not is_of(new, {**old, "pixels": 4})
    assert not is_of(new, {**old, "unroll": 2})


def test_what_failed_on_the_device_is_not_taken(tmp_path, conv_log):
    path, actions = conv_log
    choice = _choice(_program(tmp_path, _model()))
    writer = LogWriter(path)
    for failed in (actions, actions_of(choice.untuned)):
        writer.append(
            trial(choice.digest, family="conv2d", actions=failed, gpu="host", status=Status.WRONG)
        )
    writer.close()
    taken = _choice(_program(tmp_path, _model(), path))
    assert actions_of(taken.tile) not in (actions, actions_of(choice.untuned))


def test_unstable_groups_are_banned_everywhere(tmp_path):
    pool = _choice(_program(tmp_path, _model()), "max_pool2d")
    path = tmp_path / "log.jsonl"
    writer = LogWriter(path)
    writer.append(trial("other", group=pool.tile.work_group, status=Status.UNSTABLE, gpu="host"))
    writer.close()
    for choice in _program(tmp_path, _model(), path).choices.values():
        assert choice.tile.work_group != pool.tile.work_group


def test_actions_of_another_target_are_left_aside_with_a_decision(tmp_path, conv_log):
    path, actions = conv_log
    choice = _choice(_program(tmp_path, _model()))
    foreign = {**actions, "work_group": [3, 5, 7]}
    path.write_text(
        replace(trial(choice.digest, family="conv2d", gpu="host"), actions=foreign).encode_line()
        + "\n",
        encoding="utf-8",
    )
    taken = _choice(_program(tmp_path, _model(), path))
    assert not taken.tuned
    assert taken.tile == choice.untuned
