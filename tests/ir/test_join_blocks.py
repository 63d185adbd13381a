"""Concatenations in place and slices without a kernel: what becomes a view, and what does not."""

from __future__ import annotations

from dataclasses import replace

import onnx
import pytest
from branches import Net
from planning import plan

from adrenoc.graph import Graph, View
from adrenoc.operand import Memory
from adrenoc.passes.checks import IllegalIrError, check_graph
from adrenoc.pipeline import State


def _joined(model: onnx.ModelProto, preset: str = "mixed", **limits: int) -> tuple[Graph, State]:
    state = plan(model, until="join_blocks", preset=preset, **limits)
    assert state.graph is not None
    return state.graph, state


def _maps(found: Graph) -> list[tuple[str, ...]]:
    """The operators of the maps that are not the copies of the border."""
    return [n.operators for n in found.nodes if n.is_map and n.operators != ("layout",)]


def _places(found: Graph, *names: str) -> list[tuple[str, int]]:
    return [found.place(name) for name in names]


def _said(state: State, subject: str) -> str:
    return " / ".join(f"{d.taken}: {d.reason}" for d in state.log if d.subject == subject)


@pytest.mark.parametrize("preset", ["mixed", "buffer"])
def test_parts_are_written_where_the_whole_lies(preset: str) -> None:
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


def test_a_whole_that_grows_is_one_tensor() -> None:
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


def test_concatenations_of_concatenations_are_one_tensor() -> None:
    net = Net(4)
    a, b, c = (net.conv("x", 4 * n) for n in (1, 2, 3))
    inner = net.concat(b, c)
    outer = net.concat(a, inner)
    found, _ = _joined(net.model(net.conv(outer, 4), net.conv(inner, 4)))
    assert _maps(found) == []
    assert _places(found, a, b, c, inner) == [(outer, 0), (outer, 1), (outer, 3), (outer, 1)]


@pytest.mark.parametrize(("first", "second", "kept"), [(6, 4, False), (4, 6, True)])
def test_a_part_within_a_block_of_four_needs_a_kernel(first: int, second: int, kept: bool) -> None:
    net = Net(4)
    whole = net.concat(net.conv("x", first), net.conv("x", second))
    found, _ = _joined(net.model(net.conv(whole, 4)))
    assert (_maps(found) == []) is kept


def test_a_kernel_does_not_read_the_image_that_it_writes() -> None:
    """The second half of a ghost module reads the first: one of them has to be copied."""
    net = Net(4)
    first = net.conv("x", 8)
    second = net.conv(first, 8, kernel=3, groups=8)
    whole = net.concat(first, second)
    model = net.model(net.conv(whole, 4))
    found, state = _joined(model)
    assert _maps(found) == [("concat",)]
    assert found.owner(second) == second
    assert "the same image" in _said(state, second)
    found, _ = _joined(model, "buffer")
    assert _maps(found) == [], "a buffer can be read and written in one kernel, elsewhere each"


def test_a_part_that_stands_there_twice_needs_a_kernel() -> None:
    net = Net(4)
    part = net.conv("x", 8)
    whole = net.concat(part, part)
    found, state = _joined(net.model(net.conv(whole, 4)))
    assert _maps(found) == [("concat",)]
    assert found.views == {}
    assert "concatenated by a kernel" in _said(state, whole)


def test_inputs_and_outputs_of_the_model_have_memory_of_their_own() -> None:
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


def test_parts_in_two_wholes_are_copied_once_at_most() -> None:
    net = Net(4)
    a, b, c = (net.conv("x", 4) for _ in range(3))
    one, other = net.concat(a, b), net.concat(b, c)
    found, state = _joined(net.model(net.conv(one, 4), net.conv(other, 4)))
    assert _maps(found) == [("concat",)]
    assert "lies in" in _said(state, b)
    net = Net(4)
    a, b = (net.conv("x", 4) for _ in range(2))
    one, other = net.concat(a, b), net.concat(b, a)
    found, state = _joined(net.model(net.conv(one, 4), net.conv(other, 4)))
    assert _maps(found) == [("concat",)]
    assert "2 of its parts would be copied" in _said(state, one)


def test_a_whole_beyond_the_layers_of_an_image_takes_a_kernel() -> None:
    net = Net(4)
    whole = net.concat(net.conv("x", 8), net.conv("x", 8))
    found, state = _joined(net.model(net.conv(whole, 4)), image_max_array_layers=3)
    assert _maps(found) == [("concat",)]
    assert "2 of its parts would be copied" in _said(state, whole)


def test_slices_of_whole_blocks_need_no_kernel() -> None:
    net = Net(4)
    source = net.conv("x", 20)
    first, second, third = net.split(source, 8, 8, 4)
    model = net.model(net.conv(first, 4), net.conv(second, 4), net.conv(third, 4))
    found, _ = _joined(model)
    assert _maps(found) == []
    assert _places(found, first, second, third) == [(source, 0), (source, 2), (source, 4)]


def test_a_slice_within_a_block_is_copied() -> None:
    net = Net(4)
    source = net.conv("x", 20)
    first, second = net.split(source, 6, 14)
    found, state = _joined(net.model(net.conv(first, 4), net.conv(second, 4)))
    assert len(_maps(found)) == 2
    assert "not whole blocks" in _said(state, first)


def test_the_end_of_a_tensor_is_whole_blocks_too() -> None:
    net = Net(4)
    source = net.conv("x", 14)
    first, second = net.split(source, 8, 6)
    found, _ = _joined(net.model(net.conv(first, 4), net.conv(second, 4)))
    assert _maps(found) == []
    assert found.operand(second).extents.c == 6


def test_slices_that_are_all_of_their_source_join_with_it() -> None:
    net = Net(4)
    source = net.conv("x", 16)
    first, second = net.split(source, 8, 8)
    third = net.conv(net.conv(second, 8, kernel=3), 8, kernel=3)
    whole = net.concat(first, second, third)
    found, _ = _joined(net.model(net.conv(whole, 4)))
    assert _maps(found) == []
    assert _places(found, source, second, third) == [(whole, 0), (whole, 2), (whole, 4)]


def test_a_channel_shuffle_takes_the_concatenation_in() -> None:
    """Alone the concatenation would need no kernel, but its only reader moves everything anyway."""
    net = Net(8)
    kept, changed = net.split(net.conv("x", 16), 8, 8)
    whole = net.concat(kept, net.conv(changed, 8))
    found, state = _joined(net.model(net.conv(net.op("Softmax", whole), 4)))
    assert len([n for n in found.nodes if "concat" in n.operators]) == 1
    assert _said(state, whole) == "" or "copied" in _said(state, kept)


def test_the_memory_of_a_whole_is_planned_once() -> None:
    net = Net(8)
    whole = net.concat(net.conv("x", 8), net.conv("x", 8))
    state = plan(net.model(net.conv(whole, 4)), until="plan_memory")
    assert state.storage is not None
    assert set(state.storage.slot_of) == {"x_NCHW", whole}
    slot = state.storage.plan.slots[state.storage.slot_of[whole]]
    assert slot.shape == (4, 8, 8, 4)


def _wrong(found: Graph, **views: View) -> None:
    check_graph(replace(found, views={**found.views, **views}))


def test_the_check_finds_what_views_must_not_do() -> None:
    net = Net(8)
    source = net.conv("x", 8)
    second, first = net.conv(source, 8, kernel=3), net.conv(source, 8)
    whole = net.concat(first, second)
    found, _ = _joined(net.model(net.conv(whole, 4)))
    check_graph(found)
    with pytest.raises(IllegalIrError, match="image that it writes"):
        _wrong(found, **{source: View(base=whole, first=0)})
    with pytest.raises(IllegalIrError, match="ends beyond"):
        _wrong(found, **{second: View(base=whole, first=3)})
    with pytest.raises(IllegalIrError, match="a second time"):
        _wrong(found, **{second: View(base=whole, first=0)})
    with pytest.raises(IllegalIrError, match="other memory"):
        moved = {
            name: replace(p, memory=Memory.BLOCKED) if name == whole else p
            for name, p in found.placements.items()
        }
        check_graph(replace(found, placements=moved))
    with pytest.raises(IllegalIrError, match="before it is made"):
        check_graph(replace(found, nodes=tuple(n for n in found.nodes if n.output != second)))


def test_only_every_second_part_of_a_chain_is_copied() -> None:
    """Each reads the one before it; beside a part that lies elsewhere the next one may stay."""
    net = Net(4)
    source = net.conv("x", 8)
    second = net.conv(source, 8, kernel=3, groups=8)
    third = net.conv(second, 8, kernel=3, groups=8)
    other = net.conv("x", 8)
    whole = net.concat(other, second, third)
    found, _ = _joined(net.model(net.conv(whole, 4)))
    assert _maps(found) == [("concat",)]
    assert [found.owner(name) == whole for name in (other, second, third)] == [True, True, False]


def test_a_part_gets_the_layout_that_the_whole_is_wanted_in() -> None:
    """A resize says nothing about its axes but the channel; the convolution behind does."""
    net = Net(4)
    grown = net.doubled(net.halved(net.conv("x", 8)))
    whole = net.concat(grown, net.conv("x", 4))
    found, _ = _joined(net.model(net.conv(whole, 4)))
    assert found.owner(grown) == whole
    assert ("concat",) not in _maps(found)
