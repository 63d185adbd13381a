"""The order of the stages is right, and what the table says of it is all that matters.

Each stage is moved past its neighbour and to both ends of the table.  Either the table refuses the
new order, with a reason, or all kernels of a dozen networks come out the same.
"""

import ast
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from pathlib import Path

import pytest
from replay_models import all_models
from tvm_ffi.structural import structural_hash

from adrenoc.base.decision import DecisionLog
from adrenoc.base.errors import DefectError
from adrenoc.base.tvmapi import tvm
from adrenoc.compile.pipeline import (
    STAGES,
    Stage,
    State,
    check_order,
    check_phase,
    program_of,
    storage_of,
)
from adrenoc.compile.steps import Phase, graph_of
from adrenoc.ir.graph import Precision, Tensor
from adrenoc.ir.options import resolve_options
from adrenoc.target.target import load_target
from tests.ir.planning import plan

_END = next(n for n, stage in enumerate(STAGES) if stage.name == "plan_memory") + 1
"""Behind this, stages only print what was decided."""
_NETWORKS = (
    *("mobilenet_v2.onnx", "resnet18.onnx", "vit.onnx", "unet.onnx", "winograd.onnx"),
    *("inverted_residuals.onnx", "grouped_shuffle.onnx", "upsampling.onnx", "moves.onnx"),
    *("windowed_attention.onnx", "linear_attention.onnx", "drawn_3.onnx", "quantised_1.onnx"),
)


def _moved(stages: tuple[Stage, ...], at: int, to: int) -> tuple[Stage, ...]:
    rest = [*stages[:at], *stages[at + 1 :]]
    return (*rest[:to], stages[at], *rest[to:])


def _moves() -> Iterator[tuple[str, tuple[Stage, ...]]]:
    """Each swap of neighbours, and each stage first and last of the whole table."""
    for at, stage in enumerate(STAGES):
        for to in {at + 1, 0, len(STAGES) - 1} - {at, len(STAGES)}:
            yield f"{stage.name} to {to}", _moved(STAGES, at, to)


def _is_refused(stages: tuple[Stage, ...]) -> bool:
    try:
        check_order(stages)
    except ValueError:
        return True
    return False


ALLOWED = {name: stages for name, stages in _moves() if not _is_refused(stages)}


def test_the_table_is_in_order():
    check_order(STAGES)
    assert {stage.phase for stage in STAGES} == set(Phase)


_PARTS = (
    *("fuse_maps:inline", "fuse_prologues:attach_prologue", "fuse_prologues:source_of"),
    *("fuse_prologues:conv_clocks", "fuse_prologues:map_clocks", "pin_precision:is_deep"),
    "pin_precision:channel_sums_of",
    *("pin_precision:moves", "place_stores:MOST_STORES", "place_stores:add_stores"),
    *("place_stores:can_store", "texel_moves:TexelMove", "texel_moves:texel_moves"),
)
"""What several stages are made of, and stands in the file of one of them."""


@cache
def _mentions(module: str) -> dict[str, set[str]]:
    """Each name at the top of a module of passes -> what of passes stands in its definition, as
    `module:name`."""
    tree = ast.parse(Path(f"{module.replace('.', '/')}.py").read_text())
    known, definitions = {}, {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("adrenoc.passes."):
            known |= {n.asname or n.name: f"{node.module}:{n.name}" for n in node.names}
        names = [node.name] if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
        if isinstance(node, ast.Assign | ast.AnnAssign):
            names = [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
            names = [n for n in names if n not in known and n not in definitions][:1]
        definitions |= dict.fromkeys(names, node)
    known |= {name: f"{module}:{name}" for name in definitions}
    return {
        name: {known[n.id] for n in ast.walk(node) if isinstance(n, ast.Name) and n.id in known}
        for name, node in definitions.items()
    }


def _calls(function: str) -> set[str]:
    """What of passes a function, class or constant of passes mentions, as `module:name`."""
    module, _, name = function.partition(":")
    return _mentions(module).get(name, set())


def _module(function: str) -> str:
    return function.partition(":")[0]


def _owned(start: str, calls: Callable[[str], set[str]], others: Collection[str]) -> set[str]:
    """What a stage has of its own module: what its function mentions there, and so on, but for
    other stages' functions and parts of several."""
    found, waiting = {start}, [start]
    while waiting:
        for other in calls(waiting.pop()) - found - {*others}:
            if _module(other) == _module(start) and not other.endswith(_PARTS):
                found.add(other)
                waiting.append(other)
    return found


def _asked(
    start: str,
    calls: Callable[[str], set[str]],
    owners: Mapping[str, set[str]],
    place: Sequence[str],
) -> dict[str, str]:
    """Stage -> the function by which a stage's function comes to call what the stage owns; of what
    several own, the first counts."""
    found, seen, waiting = {}, {start}, [start]
    while waiting:
        function = waiting.pop()
        for other in calls(function) - seen:
            seen.add(other)
            if _module(other) != _module(start) and owners.get(other):
                found[min(owners[other], key=place.index)] = function
            else:
                waiting.append(other)
    return found


def _undeclared(
    stages: Sequence[Stage], functions: Mapping[str, str], calls: Callable[[str], set[str]]
) -> list[str]:
    """Where a stage calls a later one that it does not say it asks, or says so and does not."""
    place = [stage.name for stage in stages]
    owners: dict[str, set[str]] = {}
    for name, function in functions.items():
        for owned in _owned(function, calls, functions.values()):
            owners.setdefault(owned, set()).add(name)
    wrong = []
    for stage in stages:
        if stage.name not in functions:
            continue
        asked = _asked(functions[stage.name], calls, owners, place)
        later = {name for name in asked if place.index(name) > place.index(stage.name)}
        wrong += [f"{stage.name} calls {name}, by {asked[name]}" for name in later - {*stage.asks}]
        wrong += [f"{stage.name} says it asks {name}" for name in {*stage.asks} - later]
    return wrong


def _functions() -> dict[str, str]:
    """Stage -> its function: a stage of the graph is called as that."""
    names = {"fuse": "fuse_around_concats"}
    modules = (
        ".".join(path.with_suffix("").parts) for path in Path("adrenoc/passes").rglob("*.py")
    )
    defined = {name: f"{module}:{name}" for module in modules for name in _mentions(module)}
    found = {stage.name: defined.get(names.get(stage.name, stage.name)) for stage in STAGES}
    return {name: function for name, function in found.items() if function is not None}


def test_a_stage_asks_no_later_one_without_saying_so():
    functions = _functions()
    assert len(functions) > 30
    assert _undeclared(STAGES, functions, _calls) == []


def test_a_call_of_a_later_stage_is_found_by_way_of_others():
    """The check itself: it follows helpers, and takes no declaration that nothing is behind."""
    functions = _functions()
    later, helper = functions["split_winograd"], "adrenoc.passes.fuse.helper:help"

    def calls(function: str) -> set[str]:
        given = {functions["read_images"]: {helper}, helper: {later}}
        return given[function] if function in given else _calls(function)

    found = _undeclared(STAGES, functions, calls)
    assert found == [f"read_images calls split_winograd, by {helper}"]
    nothing = [f"{stage.name} says it asks {name}" for stage in STAGES for name in stage.asks]
    assert sorted(_undeclared(STAGES, functions, lambda _: set())) == sorted(nothing)


def test_each_reason_is_of_a_stage_of_the_same_phase():
    phases = {stage.name: stage.phase for stage in STAGES}
    for stage in STAGES:
        assert all(phases[other] is stage.phase for other in stage.after), stage.name
        assert all(other in phases for other in stage.asks), stage.name
        assert all(len(reason) > 10 for reason in (*stage.after.values(), *stage.asks.values()))


def test_no_stage_can_be_moved_to_the_far_end():
    """Phases see to it: nothing that plans stands behind `build`."""
    names = [stage.name for stage in STAGES]
    for at in range(len(STAGES)):
        for to in (0, len(STAGES) - 1):
            if at != to:
                assert _is_refused(_moved(STAGES, at, to)), names[at]


def test_an_order_that_is_refused_names_the_reason():
    at = next(n for n, stage in enumerate(STAGES) if stage.name == "fuse_attention")
    with pytest.raises(ValueError, match="fuse comes after fuse_attention: else maps"):
        check_order(_moved(STAGES, at, at + 1))
    with pytest.raises(ValueError, match="stands behind"):
        check_order(tuple(reversed(STAGES)))


@pytest.fixture(scope="module")
def networks(tmp_path_factory) -> tuple[State, ...]:
    """A dozen networks as they are imported, planned once with every option that adds a stage."""
    folder, makers = tmp_path_factory.mktemp("networks"), all_models()
    states = []
    for number, name in enumerate(_NETWORKS):
        makers[name](folder / name)
        states.append(_start(folder / name, preset="fp16" if number % 2 else "mixed"))
    return tuple(states)


def _start(model: Path, *, preset: str) -> State:
    target = load_target("adreno:750")
    options = resolve_options(target, preset=preset).options
    start = State(model=model, target=target, options=replace(options, expose_layers=True))
    imported = STAGES[0].run(start)
    names = tuple(sorted(imported.imported.tensors.values()))[:2] if imported.imported else ()
    return replace(imported, options=replace(imported.options, float32_tensors=names))


def _after(state: State, stages: Sequence[Stage]) -> list[State]:
    """The state itself, and what it becomes by each of the stages in turn."""
    states = [replace(state, log=DecisionLog())]
    for stage in stages:
        runs = stage.when(states[-1].options)
        states.append(stage.run(states[-1]) if runs else states[-1])
    return states


def _digest(state: State) -> str:
    """Of all kernels, their launches and the memory."""
    program = program_of(state)
    kernels = [
        (name, structural_hash(kernel.func), kernel.launch, kernel.scopes)
        for name, kernel in sorted(program.kernels.items())
    ]
    steps = [(step.kernel, step.arguments, step.written) for step in program.steps]
    return repr((kernels, steps, storage_of(state).slot_of))


@pytest.fixture(scope="module")
def in_order(networks) -> tuple[list[State], ...]:
    """Of each network, the states between the stages in the table's order."""
    return tuple(_after(state, STAGES[1:_END]) for state in networks)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ALLOWED)
def test_what_the_table_allows_changes_no_kernel(name, in_order):
    """What comes before the first stage that is elsewhere is as it was.

    So is what comes after two that changed places where one of them changes nothing in either.
    """
    stages = [stage for stage in ALLOWED[name] if stage in STAGES[1:_END]]
    pairs = zip(stages, STAGES[1:_END], strict=True)
    elsewhere = [n for n, (own, usual) in enumerate(pairs) if own is not usual]
    first, behind = elsewhere[0], elsewhere[-1] + 1
    for states in in_order:
        usual, moved = states[first : behind + 1], _after(states[first], stages[first:behind])
        if len(elsewhere) == 2 and _is_one_idle(usual, moved):
            continue
        found = _after(moved[-1], stages[behind:])[-1]
        assert _digest(found) == _digest(states[-1]), found.model.name


def _is_one_idle(usual: Sequence[State], moved: Sequence[State]) -> bool:
    """Return whether one of two stages left all but the log as it was, first and second."""
    (start, between, end), (again, other, last) = usual, moved
    return (_is_kept(start, between) and _is_kept(other, last)) or (
        _is_kept(between, end) and _is_kept(again, other)
    )


def _is_kept(before: State, after: State) -> bool:
    names = [field.name for field in fields(State) if field.name != "log"]
    return all(getattr(before, name) is getattr(after, name) for name in names)


def test_stages_that_both_change_something_are_not_idle(model):
    """The short cut itself."""
    states = _after(_start(model, preset="mixed"), STAGES[1:_END])
    changes = [n for n in range(1, len(states)) if not _is_kept(states[n - 1], states[n])]
    at = next(n for n in changes if n + 1 in changes)
    assert _is_one_idle([states[at]] * 3, [states[at]] * 3)
    assert not _is_one_idle(states[at - 1 : at + 2], states[at - 1 : at + 2])


@pytest.fixture
def model(tmp_path) -> Path:
    path = tmp_path / "upsampling.onnx"
    all_models()[path.name](path)
    return path


def test_a_module_without_a_function_is_found(model):
    state = plan(model, until="simplify")
    module = tvm.IRModule({"other": state.module["main"]})
    with pytest.raises(DefectError, match="has no main, but other, after the phase simplify"):
        check_phase(Phase.SIMPLIFY, replace(state, module=module))


def test_a_node_of_no_family_is_found_after_fusion(model):
    state = plan(model, until="fuse")
    check_phase(Phase.FUSE, state)
    graph = graph_of(state)
    strange = replace(graph.nodes[0], op="riddle")
    with pytest.raises(DefectError, match="a riddle, which no family"):
        check_phase(
            Phase.FUSE, replace(state, graph=graph.replace_nodes([strange, *graph.nodes[1:]]))
        )


def test_a_precision_of_no_tensor_is_found(model):
    state = plan(model, until="keep_float32")
    check_phase(Phase.PRECISION, state)
    graph = replace(graph_of(state), precisions={"nobody": Precision(float32=True)})
    with pytest.raises(DefectError, match="nobody asks for float32, and is no tensor"):
        check_phase(Phase.PRECISION, replace(state, graph=graph))


def test_a_tensor_without_a_place_is_found(model):
    state = plan(model, until="join_blocks")
    check_phase(Phase.PLACE, state)
    graph = graph_of(state)
    unread = Tensor(name="unread", shape=(1,), dtype="float32")
    graph = replace(graph, tensors={**graph.tensors, "unread": unread})
    with pytest.raises(DefectError, match="unread has no place"):
        check_phase(Phase.PLACE, replace(state, graph=graph))


def test_a_step_that_is_lost_is_found(model):
    state = plan(model, until="emit_relax")
    check_phase(Phase.LOWER, state)
    program = program_of(state)
    with pytest.raises(DefectError, match="steps for"):
        check_phase(Phase.LOWER, replace(state, program=replace(program, steps=program.steps[1:])))
