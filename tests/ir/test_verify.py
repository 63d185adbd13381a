"""Whatever is compiled, for whatever target and preset: what breaks a rule is not written."""

import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import pytest

from adrenoc.base.decision import DecisionLog
from adrenoc.base.errors import DefectError
from adrenoc.base.host.extras import find_zig
from adrenoc.base.reporter import SilentReporter
from adrenoc.compile import steps
from adrenoc.compile.make import make_bundle
from adrenoc.compile.pipeline import STAGES, State, program_of, storage_of
from adrenoc.compile.steps import emit_relax_step
from adrenoc.ir.graph import ALLOC, View
from adrenoc.ir.layout import TEXTURE
from adrenoc.ir.options import list_presets, resolve_options
from adrenoc.ir.program import Program
from adrenoc.kernels.codegen.opencl_sharing import Shared
from adrenoc.passes.fuse import fuse_depthwise
from adrenoc.passes.lower.plan_memory import Storage
from adrenoc.passes.verify.check_graph import parse_opencl
from adrenoc.target.target import load_target
from tests.ir.branches import Net
from tests.ir.planning import plan

DEVICES = ("adreno", "adreno:750", "host")
PRESETS = tuple(preset.name for preset in list_presets())

Fault = Callable[[State], State]


def _net() -> Net:
    """A concatenation in place, a range of it, a chain; nothing here is joined or split."""
    net = Net(8)
    squeezed = net.conv("x", 8, kernel=3)
    whole = net.concat(net.conv(squeezed, 12, kernel=3), net.conv(squeezed, 8, kernel=3))
    one, _ = net.split(whole, 12, 8)
    left, right = net.op("Softmax", one), net.op("Softmax", whole)
    net.outputs = (net.conv(left, 4, kernel=3), net.op("Softmax", right))
    return net


@pytest.fixture(scope="module")
def built() -> Callable[[str, str], State]:
    """The finished compilation for a device and a preset."""
    made: dict[tuple[str, str], State] = {}

    def finished(device: str, preset: str) -> State:
        key = (device, preset)
        if key not in made:
            net = _net()
            model = net.model(*net.outputs)
            made[key] = plan(model, until="build", device=device, preset=preset)
        return made[key]

    return finished


# What breaks a rule


def _with_plan(state: State, program: Program, storage: Storage | None = None) -> State:
    """The state with another program, from which the module is made as it always is."""
    return emit_relax_step(replace(state, program=program, storage=storage or state.storage))


def _tensors(state: State) -> list[str]:
    """Those with slots, in the order of their launches."""
    program, slots = program_of(state), storage_of(state).slot_of
    owners = (program.graph.owner(n) for step in program.steps for n in step.writes)
    return [name for name in dict.fromkeys(owners) if name in slots]


def _moved(state: State, slot_of: Mapping[str, int]) -> State:
    return _with_plan(state, program_of(state), replace(storage_of(state), slot_of=dict(slot_of)))


def swap_slots(state: State) -> State:
    """Two tensors that are alive together change places, in a part of their lives."""
    first, second, *_ = _tensors(state)
    slots = storage_of(state).slot_of
    return _moved(state, {**slots, first: slots[second], second: slots[first]})


def share_a_slot(state: State) -> State:
    """A kernel's result overwrites what it reads."""
    program, slots = program_of(state), storage_of(state).slot_of
    graph = program.graph
    for step in program.steps:
        (own,) = {graph.owner(name) for name in step.writes}
        for name in {graph.owner(n) for n in step.reads if n not in program.params}:
            if name in slots and own in slots and name != own:
                return _moved(state, {**slots, own: slots[name]})
    raise AssertionError("no step reads a slot and writes one")


def small_slot(state: State) -> State:
    """A slot has less memory than its tensor."""
    storage = storage_of(state)
    slots = tuple(
        replace(slot, shape=(slot.shape[0] // 2, *slot.shape[1:]), bytes=slot.bytes // 8)
        for slot in storage.plan.slots
    )
    smaller = replace(storage, plan=replace(storage.plan, slots=slots))
    return _with_plan(state, program_of(state), smaller)


def no_slot(state: State) -> State:
    """A tensor has no memory."""
    first, *_ = _tensors(state)
    slots = {n: slot for n, slot in storage_of(state).slot_of.items() if n != first}
    return replace(state, storage=replace(storage_of(state), slot_of=slots))


def read_own_output(state: State) -> State:
    """A launch is given its own result to read."""
    program = program_of(state)
    *before, last = program.steps
    same = replace(last, arguments=(last.writes[0], *last.arguments[1:]))
    return replace(state, program=replace(program, steps=(*before, same)))


def lie_in_own_output(state: State) -> State:
    """What a kernel reads becomes a range of what it writes."""
    program = program_of(state)
    graph = program.graph
    node = next(n for n in graph.nodes if n.op == "conv2d" and n.inputs[0] in _tensors(state))
    views = {**graph.views, node.inputs[0]: View(base=node.output, first=0)}
    return replace(state, program=replace(program, graph=replace(graph, views=views)))


def drop_a_launch(state: State) -> State:
    """What makes a tensor is left out: a copy into texels, or any other kernel."""
    program = program_of(state)
    graph = replace(program.graph, nodes=program.graph.nodes[1:])
    return replace(state, program=replace(program, graph=graph, steps=program.steps[1:]))


def drop_a_launch_in_the_module(state: State) -> State:
    """The plan has it, the program that runs has its memory alone."""
    program = program_of(state)
    *before, last = program.steps
    without = replace(program, steps=(*before, replace(last, place=ALLOC)))
    return replace(_with_plan(state, without), program=program)


def swap_slots_in_the_module(state: State) -> State:
    """The plan is right, the program that runs has other memory."""
    return replace(swap_slots(state), storage=state.storage)


def another_order(state: State) -> State:
    """A launch comes before the one that makes what it reads."""
    program = program_of(state)
    (a, b, *steps), (first, second, *nodes) = program.steps, program.graph.nodes
    graph = replace(program.graph, nodes=(second, first, *nodes))
    return replace(state, program=replace(program, graph=graph, steps=(b, a, *steps)))


def swap_arguments(state: State) -> State:
    """A kernel gets the image for its weights."""
    program = program_of(state)
    number = next(
        i
        for i, step in enumerate(program.steps)
        if len({_shape(program, name) for name in step.reads}) > 1
    )
    step = program.steps[number]
    turned = replace(step, arguments=(*reversed(step.reads), *step.writes))
    steps = (*program.steps[:number], turned, *program.steps[number + 1 :])
    return replace(state, program=replace(program, steps=steps))


def _shape(program: Program, name: str) -> tuple[int, ...]:
    param = program.params.get(name)
    return (program.graph.operand(name) if param is None else param.spec).physical


def _limited(state: State, **limits: int) -> State:
    gpu = replace(state.target.gpu, limits=replace(state.target.limits, **limits))
    return replace(state, target=replace(state.target, gpu=gpu))


def large_group(state: State) -> State:
    """More threads in a group than the GPU runs."""
    return _limited(state, max_work_group_size=1)


def little_local_memory(state: State) -> State:
    """A kernel takes more local memory than a group has."""
    program = program_of(state)
    name, kernel = next(iter(program.kernels.items()))
    beyond = replace(kernel, shared_bytes=state.target.limits.local_mem_bytes + 1)
    return replace(state, program=replace(program, kernels={**program.kernels, name: beyond}))


def many_arguments(state: State) -> State:
    """More arguments than a kernel may have."""
    return _limited(state, max_kernel_args=1)


def wide_image(state: State) -> State:
    """An image is wider than the GPU reads."""
    return _limited(state, image2d_max_width_texels=7)


def many_layers(state: State) -> State:
    """An image has more layers."""
    return _limited(state, image_max_array_layers=1)


def many_images(state: State) -> State:
    """A kernel reads more images."""
    return _limited(state, max_read_image_args=0)


ANYWHERE: dict[Fault, str] = {
    swap_slots: "from the memory it writes|from slot|goes on with|does not fit",
    share_a_slot: "from the memory it writes|does not fit",
    small_slot: "does not fit",
    no_slot: "has no memory",
    read_own_output: "to read, not",
    lie_in_own_output: "a second time",
    drop_a_launch: "before it is made",
    drop_a_launch_in_the_module: "main does not launch",
    swap_slots_in_the_module: "planned was",
    another_order: "before it is made",
    swap_arguments: "gives .* for",
    large_group: "threads a work-group",
    little_local_memory: "bytes of local memory",
    many_arguments: "arguments, at most",
}
"""What is done -> what is said of it."""
IN_IMAGES: dict[Fault, str] = {
    wide_image: "in 2 layers, at most 7 x",
    many_layers: "at most .* in 1",
    many_images: "images, at most",
}


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("device", DEVICES)
def test_every_fault_is_refused_everywhere(built, device, preset):
    state = built(device, preset)
    assert steps.verify_step(state) is state
    images = any(TEXTURE in kernel.scopes for kernel in program_of(state).kernels.values())
    assert images == (preset != "buffer")
    for fault, told in {**ANYWHERE, **(IN_IMAGES if images else {})}.items():
        with pytest.raises(DefectError, match=told):
            steps.verify_step(fault(state))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("(out_ptr,", "(in0_ptr,", "reads in0_ptr, an image that it writes"),
        ("__write_only", "__read_only", "declares out_ptr as __read_only"),
        ("image2d_array_t in0", "image2d_t in0", "declares in0_ptr as"),
        ("__kernel", "void", "no text of the kernel"),
        (", __write_only", ", int n, __write_only", "arguments"),
    ],
)
def test_the_text_of_kernels_is_held_against_the_launches(built, monkeypatch, old, new, told):
    state = built("adreno", "mixed")
    sources = steps.kernel_sources(state.executable)
    name = next(n for n, text in sources.items() if old in text and "image2d_array_t in0" in text)
    head, start, rest = sources[name].partition("__kernel")
    planted = {**sources, name: head + (start + rest).replace(old, new)}
    monkeypatch.setattr(steps, "kernel_sources", lambda _: planted)
    with pytest.raises(DefectError, match=told):
        steps.verify_step(state)


@pytest.mark.parametrize("number", ["int 2147483648", "int 1.0", "float 1e39f", "long 1"])
def test_constants_of_kernels_are_such_as_the_runtime_reads(built, monkeypatch, number):
    state = built("adreno", "mixed")
    planted = [
        text.replace("_kernel\n", f"_kernel\n// Constants: {number}\n", 1)
        for text in steps.module_texts(state.executable.mod)
    ]
    monkeypatch.setattr(steps, "module_texts", lambda _: planted)
    with pytest.raises(DefectError, match=f"has the constant {number}, beyond its type"):
        steps.verify_step(state)


@pytest.mark.parametrize("preset", ["mixed", "fp16", "fp32"])
def test_the_text_of_kernels_is_parsed(built, monkeypatch, tmp_path, preset):
    """What is no OpenCL C is said by its line, and kept."""
    state = built("adreno", preset)
    texts = steps.module_texts(state.executable.mod)
    head, written, rest = texts[0].rpartition("write_imagef(")
    planted = [f"{head}write_imagef(float4)({rest}", *texts[1:]]
    assert written
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(steps, "module_texts", lambda _: planted)
    with pytest.raises(DefectError, match="is no OpenCL C: unexpected type name 'float4'") as told:
        steps.verify_step(state)
    (kept,) = tmp_path.glob("adrenoc-*.cl")
    found = re.search(r"line (\d+), column \d+ of (.*?)\)", told.value.message)
    assert found is not None and found[2] == str(kept)
    assert "write_imagef(float4)(" in kept.read_text().splitlines()[int(found[1]) - 1]


def test_texts_neither_clash_nor_lend_each_other_what_they_define():
    own = "static float TWICE(float x) { return 2 * x; }\n#define FOUR 4\n"
    kernel = "__kernel void {}(__global float* restrict x) {{ x[0] = TWICE(x[FOUR]); }}\n"
    programs = {
        name: Shared(program=name, constants=(), text=own + kernel.format(name))
        for name in ("a_kernel", "b_kernel")
    }
    front_end = find_zig()
    assert front_end is not None
    parse_opencl(front_end, programs)
    alone = Shared(program="c_kernel", constants=(), text=kernel.format("c_kernel"))
    with pytest.raises(DefectError, match=r"c_kernel is no OpenCL C: .*'(TWICE|FOUR)'"):
        parse_opencl(front_end, {**programs, "c_kernel": alone})


def test_without_a_front_end_a_decision_says_so(built, monkeypatch):
    monkeypatch.setattr(steps, "find_zig", lambda: None)
    state = replace(built("adreno", "mixed"), log=DecisionLog())
    steps.verify_step(state)
    (decision,) = state.log.find("texts of kernels")
    assert decision.taken == "not parsed" and "ziglang" in decision.reason


@pytest.mark.parametrize("shape", [(1,), (7, 1), (2, 3, 1), (1, 1, 7, 1), (4, 1, 5, 5)])
def test_a_constant_half_output_of_one_channel_is_opencl(tmp_path, shape):
    value = np.arange(np.prod(shape), dtype=np.float16).reshape(shape)
    node = onnx.helper.make_node("Constant", [], ["y"], value=onnx.numpy_helper.from_array(value))
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT16, list(shape))
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", [], [y]))
    for preset in PRESETS:
        _compile(model, tmp_path, "host", preset)


# It runs in every compilation


def test_no_option_and_no_target_leaves_it_out():
    *_, last = STAGES
    assert last.run is steps.verify_step
    target = load_target("adreno")
    for changes in ({}, {"check_ir": False}, {"clml": "all"}, {"expose_layers": True}):
        for preset in PRESETS:
            options = resolve_options(target, preset=preset, command_line=changes).options
            assert last.when(options)


@pytest.mark.parametrize("preset", [name for name in PRESETS if name != "buffer"])
@pytest.mark.parametrize("device", ["adreno", "adreno:750", "host"])
def test_a_pass_that_goes_wrong_writes_no_bundle(monkeypatch, tmp_path, device, preset):
    """A chain whose later parts read earlier ones, with the pass that joins kernels blind."""
    monkeypatch.setattr(fuse_depthwise, "image_clash", lambda *_: None)
    with pytest.raises(DefectError, match="from the image that it writes"):
        _compile(chain(), tmp_path, device, preset)
    assert not (tmp_path / "out").exists()


def _compile(model: onnx.ModelProto, folder: Path, device: str, preset: str):
    path, target = folder / "model.onnx", load_target(device)
    onnx.save(model, path)
    options = resolve_options(target, preset=preset, command_line={"check_ir": False}).options
    return make_bundle(
        path,
        target=target,
        options=options,
        output=folder / "out",
        reporter=SilentReporter(),
        use_cache=False,
    )


def chain() -> onnx.ModelProto:
    """Each part is a 1x1 and a depthwise convolution of the part before it."""
    net = Net(8)
    parts = [net.conv("x", 16, kernel=3)]
    for _ in range(2):
        wide = net.conv(parts[-1], 16)
        parts.append(net.conv(wide, 16, kernel=3, groups=16))
    return net.model(net.conv(net.concat(*parts), 8, kernel=3))
