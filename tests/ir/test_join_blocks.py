"""Concatenations in place and slices without a kernel: what becomes a view, and what does not."""

import tempfile
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adrenoc.base.errors import DefectError
from adrenoc.compile.pipeline import State, program_of, storage_of
from adrenoc.compile.steps import check_plan
from adrenoc.ir.graph import Graph, Store, View
from adrenoc.ir.layout import Memory, TexelOrder
from adrenoc.passes.verify.check_graph import check_graph
from tests.examples import examples
from tests.host.random_graphs.branches import draw_branches
from tests.host.run_op import Ops
from tests.ir.branches import Net
from tests.ir.planning import plan


@st.composite
def networks(draw) -> Ops:
    return draw_branches(lambda low, high: draw(st.integers(low, high)))


@pytest.mark.parametrize(
    ("device", "preset"),
    [("adreno", "mixed"), ("adreno:610", "fp16"), ("adreno:750", "fp32"), ("host", "mixed")],
)
@examples(6)
@given(ops=networks())
def test_the_program_keeps_the_rules(ops, device, preset):
    state = _planned(ops, device, preset)
    check_plan(program_of(state), {"": storage_of(state)}, state.target.limits)


def _planned(ops: Ops, device: str, preset: str) -> State:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "branches.onnx"
        ops.save(path)
        return plan(path, until="plan_memory", device=device, preset=preset)


def _joined(model: onnx.ModelProto, preset: str = "mixed", **limits: int) -> tuple[Graph, State]:
    state = plan(model, until="join_blocks", preset=preset, **limits)
    assert state.graph is not None
    return state.graph, state


def _maps(found: Graph) -> list[tuple[str, ...]]:
    """The operators of the maps that are not the copies of the border."""
    return [n.operators for n in found.nodes if n.is_map and n.operators != ("layout",)]


def _places(found: Graph, *names: str) -> list[tuple[str, int]]:
    return [found.place(name) for name in names]


def _written(found: Graph, output: str) -> list[tuple[str, int, int]]:
    """Where a node writes: memory, first block there, first block of the result."""
    return [
        (*found.place(store.tensor), store.first)
        for node in found.nodes
        for store in node.stores
        if node.output == output
    ]


def _said(state: State, subject: str) -> str:
    return " / ".join(f"{d.taken}: {d.reason}" for d in state.log if d.subject == subject)


@pytest.mark.parametrize("preset", ["mixed", "buffer"])
def test_parts_are_written_where_the_whole_lies(preset):
    net = Net(8)
    squeezed = net.conv("x", 8)
    one, three = net.conv(squeezed, 12), net.conv(squeezed, 8, kernel=3)
    whole = net.concat(one, three)
    found, _ = _joined(net.model(net.conv(whole, 4)), preset)
    assert _maps(found) == []
    assert found.views == {one: View(base=whole, first=0), three: View(base=whole, first=3)}
    spec = found.operand(three)
    assert spec.extents.c == 8
    assert spec.physical == found.operand(whole).physical
    assert spec.alone.physical[0] == 2


def test_a_whole_that_grows_is_one_tensor():
    net = Net(8)
    first = net.conv("x", 8)
    second = net.conv(net.conv(first, 4), 4, kernel=3)
    both = net.concat(first, second)
    third = net.conv(net.conv(both, 4), 4, kernel=3)
    all_three = net.concat(first, second, third)
    found, _ = _joined(net.model(net.conv(all_three, 4)))
    assert _maps(found) == []
    assert _places(found, first, second, both, third) == [
        (all_three, 0),
        (all_three, 2),
        (all_three, 0),
        (all_three, 3),
    ]


def test_concatenations_of_concatenations_are_one_tensor():
    net = Net(4)
    a, b, c = (net.conv("x", 4 * n) for n in (1, 2, 3))
    inner = net.concat(b, c)
    outer = net.concat(a, inner)
    found, _ = _joined(net.model(net.conv(outer, 4), net.conv(inner, 4)))
    assert _maps(found) == []
    assert _places(found, a, b, c, inner) == [(outer, 0), (outer, 1), (outer, 3), (outer, 1)]


@pytest.mark.parametrize(("first", "second", "kept"), [(6, 4, False), (4, 6, True)])
def test_a_part_within_a_block_of_four_needs_a_kernel(first, second, kept):
    net = Net(4)
    whole = net.concat(net.conv("x", first), net.conv("x", second))
    found, _ = _joined(net.model(net.conv(net.op("Softmax", whole), 4)))
    assert (_maps(found) == []) is kept


def test_a_kernel_does_not_read_the_image_that_it_writes():
    """The second half of a ghost module reads the first, which is written twice for that."""
    net = Net(4)
    first = net.conv("x", 8)
    second = net.conv(first, 8, kernel=3, groups=8)
    whole = net.concat(first, second)
    model = net.model(net.conv(whole, 4))
    found, state = _joined(model)
    assert _maps(found) == []
    assert _places(found, first, second) == [(first, 0), (whole, 2)]
    assert _written(found, first) == [(first, 0, 0), (whole, 0, 0)]
    assert "the same image" in _said(state, first)
    found, _ = _joined(model, "buffer")
    assert found.owner(first) == whole
    assert _maps(found) == [], "a buffer can be read and written in one kernel, elsewhere each"


def test_a_part_that_stands_there_twice_is_written_twice():
    net = Net(4)
    part = net.conv("x", 8)
    whole = net.concat(part, part)
    found, state = _joined(net.model(net.conv(whole, 4)))
    assert _maps(found) == []
    assert _written(found, part) == [(whole, 0, 0), (whole, 2, 0)]
    assert f"written into {whole} too" in _said(state, part)


def test_inputs_and_outputs_of_the_model_have_memory_of_their_own():
    net = Net(4)
    part = net.conv("x", 8)
    whole = net.concat(part, net.conv("x", 8))
    found, _ = _joined(net.model(net.conv(whole, 4), part))
    assert found.owner(part) == whole, "the output is a copy of the part"
    net = Net(4)
    whole = net.concat("x", net.conv("x", 8))
    found, _ = _joined(net.model(net.conv(whole, 4)))
    assert _maps(found) == [("concat",)]
    net = Net(4)
    whole = net.concat(net.conv("x", 4), net.conv("x", 8))
    found, _ = _joined(net.model(whole))
    assert _maps(found) == [("concat",)]


def test_parts_in_two_wholes_are_written_into_both():
    net = Net(4)
    a, b, c = (net.conv("x", 4) for _ in range(3))
    one, other = net.concat(a, b), net.concat(b, c)
    found, state = _joined(net.model(net.conv(one, 4), net.conv(other, 4)))
    assert _maps(found) == []
    assert "lies in" in _said(state, b)
    assert _written(found, b) == [(other, 0, 0), (one, 1, 0)]
    net = Net(4)
    a, b = (net.conv("x", 4) for _ in range(2))
    one, other = net.concat(a, b), net.concat(b, a)
    found, state = _joined(net.model(net.conv(one, 4), net.conv(other, 4)))
    assert _maps(found) == []
    assert _written(found, a) == [(other, 1, 0), (one, 0, 0)]


def test_halves_of_one_result_go_to_different_wholes():
    """Its kernel writes both, and the result as a whole lies nowhere."""
    net = Net(4)
    both = net.conv("x", 24)
    left, right = net.split(both, 8, 16)
    one, other = net.concat(left, net.conv("x", 4)), net.concat(net.conv("x", 8), right)
    found, _ = _joined(net.model(net.conv(one, 4), net.conv(other, 4)))
    assert _maps(found) == []
    assert _written(found, both) == [(one, 0, 0), (other, 2, 2)]
    assert both not in {found.owner(name) for node in found.nodes for name in node.writes}


def test_a_concatenation_within_two_others_is_written_by_those_that_make_its_parts():
    net = Net(4)
    a, b, c, d = (net.conv("x", 4 * n) for n in (1, 2, 3, 1))
    inner = net.concat(a, b)
    one, other = net.concat(inner, c), net.concat(d, inner)
    found, _ = _joined(net.model(net.conv(one, 4), net.conv(other, 4)))
    assert _maps(found) == []
    assert _written(found, b) == [(other, 2, 0), (one, 1, 0)]


def test_more_places_than_a_kernel_may_write_are_copied():
    net = Net(4)
    part = net.conv("x", 4)
    wholes = [net.concat(part, net.conv("x", 4)) for _ in range(9)]
    model = net.model(*(net.conv(whole, 4) for whole in wholes))
    assert _maps(_joined(model)[0]) == []
    found, _ = _joined(model, max_write_image_args=8)
    assert _maps(found) == [("concat",)]
    assert len(_written(found, part)) == 8


def test_what_no_kernel_makes_is_copied_into_a_concatenation():
    net = Net(8)
    whole = net.concat(net.conv("x", 8), "x")
    found, _ = _joined(net.model(net.conv(whole, 4)))
    assert _maps(found) == [("concat",)]


def test_parts_are_written_into_a_whole_that_is_folded_otherwise():
    net = Net(4)
    parts = net.conv("x", 8), net.conv("x", 8)
    whole = net.concat(*parts)
    found, _ = _joined(net.model(net.conv(whole, 4)), image_max_array_layers=3)
    assert _maps(found) == []
    assert found.operand(whole).roles.order is TexelOrder.ROWS
    assert [_written(found, part) for part in parts] == [[(whole, 0, 0)], [(whole, 2, 0)]]


def test_slices_of_whole_blocks_need_no_kernel():
    net = Net(4)
    source = net.conv("x", 20)
    first, second, third = net.split(source, 8, 8, 4)
    model = net.model(net.conv(first, 4), net.conv(second, 4), net.conv(third, 4))
    found, _ = _joined(model)
    assert _maps(found) == []
    assert _places(found, first, second, third) == [(source, 0), (source, 2), (source, 4)]


def test_a_slice_within_a_block_is_copied():
    net = Net(4)
    first, second = net.split(net.conv("x", 20), 6, 14)
    first_ends, second_ends = (net.conv(net.op("Softmax", n), 4) for n in (first, second))
    found, state = _joined(net.model(first_ends, second_ends))
    assert len(_maps(found)) == 2
    assert "not whole blocks" in _said(state, first)


def test_the_end_of_a_tensor_is_whole_blocks_too():
    net = Net(4)
    first, second = net.split(net.conv("x", 14), 8, 6)
    found, _ = _joined(net.model(net.conv(first, 4), net.conv(second, 4)))
    assert _maps(found) == []
    assert found.operand(second).extents.c == 6


def test_slices_that_are_all_of_their_source_join_with_it():
    net = Net(4)
    source = net.conv("x", 16)
    first, second = net.split(source, 8, 8)
    third = net.conv(net.conv(second, 8, kernel=3), 8, kernel=3)
    whole = net.concat(first, second, third)
    found, _ = _joined(net.model(net.conv(whole, 4)))
    assert _maps(found) == []
    assert _places(found, source, second, third) == [(whole, 0), (whole, 2), (whole, 4)]


def test_a_slice_that_is_part_of_a_concatenation_is_written_there():
    net = Net(8)
    both = net.conv("x", 16)
    kept, changed = net.split(both, 8, 8)
    whole = net.concat(kept, net.conv(changed, 8))
    found, _ = _joined(net.model(net.conv(net.op("Softmax", whole), 4)))
    assert _maps(found) == []
    assert _written(found, both) == [(both, 0, 0), (whole, 0, 0)]


def test_the_memory_of_a_whole_is_planned_once():
    net = Net(8)
    whole = net.concat(net.conv("x", 8), net.conv("x", 8))
    state = plan(net.model(net.conv(whole, 4)), until="plan_memory")
    assert set(state.storage.slot_of) == {"x_NCHW", whole}
    assert state.storage.plan.slots[state.storage.slot_of[whole]].shape == (4, 8, 8, 4)


def _wrong(found: Graph, **views: View) -> None:
    check_graph(replace(found, views={**found.views, **views}))


def _check_stores(found: Graph, output: str, *stores: Store) -> None:
    nodes = (replace(n, stores=stores) if n.output == output else n for n in found.nodes)
    check_graph(replace(found, nodes=tuple(nodes)))


def test_the_check_finds_what_views_must_not_do():
    net = Net(8)
    source = net.conv("x", 8)
    second, first = net.conv(source, 8, kernel=3), net.conv(source, 8)
    whole = net.concat(first, second)
    found, _ = _joined(net.model(net.conv(whole, 4)))
    check_graph(found)
    with pytest.raises(DefectError, match="image that it writes"):
        _wrong(found, **{source: View(base=whole, first=0)})
    with pytest.raises(DefectError, match="no range of blocks"):
        _check_stores(found, first, Store(tensor=first, first=1))
    with pytest.raises(DefectError, match="a second time"):
        _check_stores(found, first, Store(tensor=first), Store(tensor=second))
    with pytest.raises(DefectError, match="ends beyond"):
        _wrong(found, **{second: View(base=whole, first=3)})
    with pytest.raises(DefectError, match="a second time"):
        _wrong(found, **{second: View(base=whole, first=0)})
    with pytest.raises(DefectError, match="other memory"):
        moved = {
            name: replace(p, memory=Memory.BLOCKED) if name == whole else p
            for name, p in found.placements.items()
        }
        check_graph(replace(found, placements=moved))
    with pytest.raises(DefectError, match="before it is made"):
        check_graph(replace(found, nodes=tuple(n for n in found.nodes if n.output != second)))


def test_parts_of_a_chain_are_written_twice_but_the_last():
    """Each reads the one before it, from memory of its own."""
    net = Net(4)
    second = net.conv(net.conv("x", 8), 8, kernel=3, groups=8)
    third = net.conv(second, 8, kernel=3, groups=8)
    other = net.conv("x", 8)
    whole = net.concat(other, second, third)
    found, _ = _joined(net.model(net.conv(whole, 4)))
    assert _maps(found) == []
    assert [found.owner(name) == whole for name in (other, second, third)] == [True, False, True]
    assert _written(found, second) == [(second, 0, 0), (whole, 2, 0)]


def test_a_part_gets_the_layout_that_the_whole_is_wanted_in():
    """A resize says nothing about its axes but the channel; the convolution behind does."""
    net = Net(4)
    grown = net.doubled(net.halved(net.conv("x", 8)))
    whole = net.concat(grown, net.conv("x", 4))
    found, _ = _joined(net.model(net.conv(whole, 4)))
    assert found.owner(grown) == whole
    assert ("concat",) not in _maps(found)
