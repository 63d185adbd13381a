"""What becomes a region, what does not and why, and how regions stand in the rest of a model."""

from dataclasses import fields, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tvm import relax

from adrenoc.base.decision import DecisionLog
from adrenoc.clml.partition import judge, merge, partition, reckoning
from adrenoc.clml.region import load_table
from adrenoc.compile.pipeline import STAGES, State
from adrenoc.importers.relax.values import flatten
from adrenoc.ir.options import resolve_options
from adrenoc.target.gpu import Performance
from adrenoc.target.target import load_target
from tests.clml.regions import build, constant, cut, matches_of, module_of, random
from tests.stock_tvm import run_on_cpu

nn = relax.op.nn
_PLAIN = Performance(launch_us=12.0)
_split = partial(partition, version=3, dtype="float32", performance=_PLAIN)


def _conv(emit, x, outs: int = 4, **attrs):
    ins = int(x.ty.shape[1])
    weight = constant(random(outs, ins // attrs.get("groups", 1), 3, 3))
    return emit(nn.conv2d(x, weight, **{"padding": (1, 1, 1, 1), **attrs}))


def _refused(emit_one, *shapes: tuple[int, ...], dtype: str = "float32") -> str:
    """Why the one operator of a function is refused."""
    matches = matches_of(module_of(emit_one, *shapes, dtype=dtype))
    assert not matches.found
    (refusal,) = matches.refusals
    return refusal.reason


def test_operators_that_read_each_other_are_one_region():
    def make(emit, x):
        a = emit(nn.relu(_conv(emit, x)))
        b = emit(nn.max_pool2d(a, (3, 3), (1, 1), (1, 1, 1, 1)))
        return relax.op.concat([a, b], 1)

    (region,) = cut(module_of(make, (1, 3, 8, 8))).regions
    assert [o.row for o in region.operators] == ["conv2d", "max_pool2d", "concat"]
    assert region.inputs == ("x0",)
    assert len(region.outputs) == 1


def test_no_region_waits_for_what_reads_it():
    # conv -> erf -> add(conv, erf): the addition must not be in the convolution's region, which
    # would have to be done before erf and after it.
    def make(emit, x):
        a = _conv(emit, x)
        return relax.op.add(a, emit(relax.op.erf(a)))

    found = cut(module_of(make, (1, 3, 8, 8)))
    assert [len(r.operators) for r in found.regions] == [1, 1]


def test_branches_beside_what_is_not_offloaded():
    def make(emit, x):
        left = _conv(emit, _conv(emit, x))
        right = _conv(emit, emit(relax.op.tanh(x)))
        return relax.op.add(left, right)

    module = module_of(make, (1, 3, 8, 8))
    rows = [[o.row for o in r.operators] for r in cut(module).regions]
    assert rows == [["conv2d", "conv2d"], ["conv2d", "binary"]]
    groups = merge(flatten(module["main"]), matches_of(module).found)
    assert sum(map(len, groups)) == 4


def test_results_that_others_read_leave_the_region(device, emulate):
    # Three results: one for erf, two for the caller, one of them read inside as well.
    def make(emit, x):
        a = _conv(emit, x)
        b = emit(nn.relu(a))
        c = _conv(emit, b)
        return emit(relax.op.erf(a)), b, c

    module, inputs = module_of(make, (1, 3, 9, 7)), [random(1, 3, 9, 7)]
    built = build(module, device)
    (region,) = built.state.clml.regions
    assert len(region.outputs) == 3
    expected = run_on_cpu(module, inputs)
    for settings in ({}, {"extension": False}):
        emulate(**settings)
        for value, wanted in zip(built.run(inputs), expected, strict=True):
            assert np.allclose(value, wanted, atol=1e-4)


def test_a_tensor_that_textures_and_a_region_read(device, emulate):
    def make(emit, x):
        a = emit(relax.op.tanh(x))
        return relax.op.add(emit(relax.op.erf(_conv(emit, a))), emit(relax.op.sin(_conv(emit, a))))

    module, inputs = module_of(make, (1, 3, 6, 5)), [random(1, 3, 6, 5)]
    built = build(module, device, preset="mixed")
    emulate()
    assert np.allclose(built.run(inputs)[0], run_on_cpu(module, inputs)[0], atol=2e-2)


def test_halves_cross_the_border(device, emulate):
    def make(emit, x):
        return nn.relu(_conv(emit, emit(relax.op.erf(_conv(emit, x)))))

    module, inputs = module_of(make, (1, 3, 6, 5)), [random(1, 3, 6, 5)]
    built = build(module, device, preset="fp16")
    assert {r.dtype for r in built.state.clml.regions} == {"float16"}
    (value,) = run_on_cpu(module, inputs)
    for settings in ({}, {"extension": False}):
        emulate(**settings)
        assert np.allclose(built.run(inputs)[0], value, atol=3e-2)


def test_sums_of_halves_are_floats_where_the_arithmetic_is():
    def make(emit, x):
        return _conv(emit, x)

    module = module_of(make, (1, 3, 6, 5))
    for compute, said in (("float32", "float32"), ("float16", "")):
        found = _split(module, keep_all=True, dtype="float16", sum_dtype=compute)
        assert found.regions[0].sum_dtype == said


def test_a_refused_convolution_keeps_its_epilogue():
    def make(emit, x):
        value = _conv(emit, x, outs=4, groups=2)
        return nn.relu(emit(relax.op.add(value, constant(random(1, 4, 1, 1)))))

    matches = matches_of(module_of(make, (1, 4, 8, 8)))
    assert not matches.found
    assert [r.reason for r in matches.refusals] == ["2 groups of 4 channels, expected 1 or 4"]


def _norm_in_training(emit, x):
    vectors = [constant(np.ones(3, "float32"))] * 4
    return relax.TupleGetItem(emit(nn.batch_norm(x, *vectors, axis=1)), 0)


def _nhwc(emit, x):
    weight = constant(random(3, 3, 3, 4))
    return nn.conv2d(x, weight, data_layout="NHWC", kernel_layout="HWIO")


def _padded_output(emit, x):
    weight = constant(random(3, 4, 3, 3))
    return nn.conv2d_transpose(x, weight, strides=(2, 2), output_padding=(1, 1))


def _half_pixels(emit, x):
    how = {"layout": "NCHW", "method": "linear", "coordinate_transformation_mode": "half_pixel"}
    return relax.op.image.resize2d(x, (8, 8), **how)


def _mean_with_pads(emit, x):
    return nn.avg_pool2d(x, (3, 3), (1, 1), (1, 1, 1, 1), count_include_pad=True)


_X, _Y = [(1, 3, 8, 8)], [(1, 3, 4, 4)]
_LEAVES = "ceil_mode with a last window that leaves the data"


@pytest.mark.parametrize(
    ("make", "shapes", "reason"),
    [
        (_conv, [(2, 3, 8, 8)], "batch 2, expected at most 1"),
        (_nhwc, [(1, 8, 8, 3)], "layout NHWC, expected NCHW"),
        (lambda e, x, w: nn.conv2d(x, w), [*_X, (4, 3, 3, 3)], "its weights are computed"),
        (_padded_output, _X, "output padding [1, 1], expected none"),
        (lambda e, x: nn.max_pool2d(x, (2, 2), dilation=(2, 2)), _X, "dilation [2, 2], expected 1"),
        (lambda e, x: nn.max_pool2d(x, (3, 3), (2, 2), ceil_mode=True), _X, _LEAVES),
        (_mean_with_pads, _X, "count_include_pad"),
        (lambda e, x: nn.max_pool2d(x, (2, 2), layout="NHWC"), [(1, 8, 8, 3)], "layout NHWC"),
        (lambda e, x: nn.softmax(x, 2), _X, "axis 2 of rank 4"),
        (lambda e, x: nn.softmax(x, 1), [(1, 3, 8)], "axis 1 of rank 3"),
        (lambda e, x, y: relax.op.add(x, y), [*_X, (1, 3, 1, 1)], "operands of shapes"),
        (lambda e, x: relax.op.multiply(x, x), [(1, 3)], "both operands are one tensor"),
        (lambda e, x: relax.op.reshape(x, (1, 2, 3, 2, 2)), [(1, 24)], "rank 5"),
        (lambda e, x: relax.op.reshape(x, (1, 40000)), [(1, 2, 20000)], "extent 40000"),
        (lambda e, x, y: relax.op.concat([x, y], 2), _Y * 2, "axis 2 of rank 4"),
        (lambda e, x: nn.pad(x, [0, 0, 1, 0, 0, 0, 0, 0]), _Y, "expected H and W alone"),
        (lambda e, x: nn.pad(x, [0] * 4 + [1] * 4, pad_value=1.0), _Y, "value 1.0, expected 0"),
        (lambda e, x: relax.op.mean(x, [1, 2]), _Y, "axes [1, 2], expected [2, 3]"),
        (_half_pixels, _Y, "half_pixel coordinates"),
        (_norm_in_training, _Y, "in training"),
        (lambda e, x, y: relax.op.matmul(x, y), [(2, 3, 4), (2, 4, 5)], "batch 2"),
        (lambda e, x: relax.op.erf(x), [(1, 3)], "no row of the CLML table"),
    ],
)
def test_refusals(make, shapes, reason):
    assert reason in _refused(make, *shapes)


def test_whole_numbers_are_refused():
    assert "int32 data" in _refused(lambda e, x: nn.relu(x), (1, 3), dtype="int32")


@pytest.mark.parametrize(("version", "taken"), [(1, False), (2, True)])
def test_an_older_interface_has_fewer_operators(version, taken):
    module = module_of(lambda e, x: relax.op.clip(x, -1, 1), (1, 3))
    matches = matches_of(module, version=version)
    assert bool(matches.found) == taken
    assert taken or "needs CLML 2, the target has 1" in matches.refusals[0].reason


def test_depth_to_space_of_the_other_order_is_refused():
    def make(emit, x):
        value = emit(relax.op.reshape(x, (1, 3, 2, 2, 4, 5)))
        value = emit(relax.op.permute_dims(value, [0, 1, 4, 2, 5, 3]))
        return relax.op.reshape(value, (1, 3, 8, 10))

    assert not matches_of(module_of(make, (1, 12, 4, 5))).found


# The cost model


def _chain(convs: int, size: int, channels: int):
    def make(emit, x):
        for _ in range(convs):
            x = emit(nn.relu(_conv(emit, x, outs=channels)))
        return x

    return module_of(make, (1, channels, size, size))


@pytest.mark.parametrize(("convs", "size", "wins"), [(1, 14, False), (12, 56, True)])
def test_auto_keeps_what_wins_after_its_copies(convs, size, wins):
    """A small convolution loses to its copies, a chain of large ones pays for them."""
    module, table = _chain(convs, size, 64), load_table()
    (region,) = cut(module).regions
    verdict = judge(region, table, _PLAIN)
    assert verdict.wins == wins and verdict.copies == 4
    found = _split(module, keep_all=False)
    assert bool(found.regions) == wins
    (decision,) = found.decisions
    taken = f"{convs} operators to CLML 1" if wins else f"{convs} operators stay in textures"
    assert decision.taken == taken
    numbers = (
        f"estimated {verdict.texture_us:.0f} us in textures, {verdict.clml_us:.0f} us in CLML and "
        f"{verdict.copies_us:.0f} us for 4 copies: {verdict.gain:.2f} times as fast, 1.1 asked"
    )
    assert decision.reason.endswith(numbers)
    forced = _split(module, keep_all=True)
    assert len(forced.regions) == 1 and "--clml all" in forced.decisions[0].reason


def test_a_gain_below_the_margin_is_not_enough():
    verdict = judge(cut(_chain(12, 56, 64)).regions[0], load_table(), _PLAIN)
    assert verdict.wins
    assert not replace(verdict, copies_us=verdict.texture_us / 1.05 - verdict.clml_us).wins
    assert replace(verdict, copies_us=verdict.texture_us / 1.12 - verdict.clml_us).wins


def test_by_what_auto_reckons_is_told_with_its_sources():
    known = replace(_PLAIN, fp32_fma_lanes=1024, clock_mhz=800)
    what, why = reckoning(load_table(), known, half=False, launch_source="here")
    assert what.startswith("328 GFLOPS, 25 GB/s, 12 us a launch")  # 0.2 of 1638
    assert "of the target's peak" in why and "TVM 17258" in why and "clpeak" in why
    what, why = reckoning(load_table(), _PLAIN, half=False, launch_source="here")
    assert what.startswith("200 GFLOPS") and "a middle Adreno" in why


def test_every_figure_has_its_source():
    table = load_table()
    figures = {f.name for f in fields(table.costs)} - {"sources"}
    assert set(table.costs.sources) == figures and all(table.costs.sources.values())
    assert all(row.source for row in table.rows.values())


@pytest.mark.parametrize(
    ("device", "said", "version"),
    [("adreno:a660", None, 1), ("adreno:a660", 4, 4), ("adreno:a750", None, 3)],
)
def test_the_version_is_the_one_of_the_target_unless_it_is_given(device, said, version):
    target = load_target(device)
    options = resolve_options(target, command_line={"clml": "all", "clml_version": said}).options
    module = module_of(lambda e, x: relax.op.clip(x, -1, 1), (1, 3))  # interface 2 has it
    log, model = DecisionLog(), Path("relax")
    state = State(model=model, target=target, options=options, module=module, log=log)
    (stage,) = (stage for stage in STAGES if stage.name == "partition_clml")
    done = stage.run(state)
    assert bool(done.clml.regions) == (version >= 2)
    assert any(d.taken == f"CLML version {version}" for d in done.log) == (said is None)


def test_a_faster_memory_makes_copies_cheaper():
    (region,) = cut(_chain(3, 56, 64)).regions
    slow = judge(region, load_table(), replace(_PLAIN, dram_gb_per_s=5.0))
    fast = judge(region, load_table(), replace(_PLAIN, dram_gb_per_s=50.0))
    assert fast.copies_us < slow.copies_us
    assert fast.clml_us <= slow.clml_us


def test_off_changes_nothing(device):
    built = build(_chain(1, 6, 4), device, clml="off")
    assert built.state.clml is None
    assert not built.state.program.regions
