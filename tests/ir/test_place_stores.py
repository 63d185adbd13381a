"""Maps that move texels: written by what makes what they read."""

import numpy as np
import pytest

from adrenoc.compile.pipeline import State
from adrenoc.ir.graph import Graph, Node
from tests.host.test_ops_placed import Net
from tests.ir.planning import plan


def _planned(net: Net, until: str = "explain_moves", **limits: int) -> tuple[Graph, State]:
    state = plan(net._model(), until=until, device="adreno:a660", **limits)
    assert state.graph is not None
    return state.graph, state


def _maps(graph: Graph) -> list[Node]:
    return [n for n in graph.nodes if n.is_map and n.output not in graph.outputs]


def _heads(net: Net, width: int) -> None:
    x = net.norm(net.input(1, 9, 16), 16)
    wide = net.turn(net.reshape(net.dense(x, 16, 6 * width), 1, 9, 3, 2, width), 2, 0, 3, 1, 4)
    parts = [net("Gather", wide, net.const(i, np.int64), axis=0) for i in range(3)]
    for part in parts:
        net.output(net.dense(part, width, 4))


def test_heads_are_written_by_the_product():
    net = Net()
    _heads(net, 8)
    before, _ = _planned(net, until="split_winograd")
    found, state = _planned(net)
    assert len(_maps(before)) == 3
    assert _maps(found) == []
    (maker,) = (n for n in found.nodes if len(n.stores) == 3)
    assert maker.op == "matmul"
    assert maker.output not in maker.writes
    assert all(s.placing is not None and s.placing.within for s in maker.stores)
    assert sum(d.taken.startswith("written by") for d in state.log) == 3


def test_what_breaks_texels_up_stays_a_kernel():
    net = Net()
    _heads(net, 6)
    found, state = _planned(net)
    assert len(_maps(found)) == 3
    assert any("put each texel together" in d.reason for d in state.log)


def test_a_kernel_writes_as_many_images_as_the_target_lets_it():
    net = Net()
    _heads(net, 8)
    found, state = _planned(net, max_write_image_args=2)
    assert len(_maps(found)) == 2
    assert any("would write more than 2 images" in d.reason for d in state.log)


def test_moves_of_moves_are_one():
    """Tokens of an image, of which some become an image again."""
    net = Net()
    x = net.conv(net.input(1, 8, 4, 6), 8, 8)
    tokens = net.turn(net.reshape(x, 1, 8, 24), 0, 2, 1)
    part = net("Slice", tokens, net.ints(6), net.ints(18), net.ints(1))
    image = net.reshape(net.turn(part, 0, 2, 1), 1, 8, 4, 3)
    net.output(net.dense(net.norm(tokens, 8), 8, 4), net.conv(image, 8, 4, kernel=3))
    found, _ = _planned(net)
    (maker,) = (n for n in found.nodes if n.stores)
    assert len(_maps(found)) == 1
    assert [found.tensors[s.tensor].shape for s in maker.stores] == [(1, 24, 8), (1, 8, 4, 3)]
    assert maker.output not in maker.writes


def test_what_is_also_read_in_place_is_written_there_too():
    net = Net()
    x = net.conv(net.input(1, 8, 4, 6), 8, 8)
    tokens = net.turn(net.reshape(x, 1, 8, 24), 0, 2, 1)
    net.output(net.dense(net.norm(tokens, 8), 8, 4), net.conv(x, 8, 4, kernel=3))
    found, _ = _planned(net)
    (maker,) = (n for n in found.nodes if n.stores)
    assert maker.writes[0] == maker.output
    assert len(maker.writes) == 2


def test_what_the_model_is_given_is_moved_by_a_kernel():
    net = Net()
    x = net.input(1, 8, 4, 6)
    tokens = net.turn(net.reshape(x, 1, 8, 24), 0, 2, 1)
    net.output(net.dense(net.norm(tokens, 8), 8, 4))
    found, state = _planned(net)
    assert not any(n.stores for n in found.nodes)
    assert len(_maps(found)) == 1
    assert any("not made by one kernel alone" in d.reason for d in state.log)


@pytest.mark.parametrize(("times", "left"), [(2, 0), (3, 1)])
def test_an_enlarged_image_is_written_a_few_times(times, left):
    net = Net()
    x = net("Relu", net.conv(net.input(1, 8, 4, 6), 8, 8))
    other = net("Relu", net.conv(net.input(1, 4, 4 * times, 6 * times), 4, 4))
    whole = net("Concat", net.doubled(x, times, times), other, axis=1)
    net.output(net.conv(net("Relu", net.conv(whole, 12, 8)), 8, 4, kernel=3))
    before, _ = _planned(net, until="split_winograd")
    found, _ = _planned(net)
    assert [len(_resizes(graph)) for graph in (before, found)] == [1, left]
    copies = [s.placing.copies for n in found.nodes for s in n.stores if s.placing is not None]
    assert copies == ([(2, 2)] if not left else [])


def test_parts_side_by_side_are_written_by_their_makers():
    """One tensor of two kernels, another of one kernel that writes two parts of it."""
    net = Net()
    left, right = (net.dense(net.norm(net.input(1, n, 8), 8), 8, 8) for n in (5, 4))
    whole = net("Concat", left, right, axis=1)
    net.output(net.dense(net.norm(net.roll(net.norm(whole, 8), 1, 2), 8), 8, 4))
    before, _ = _planned(net, until="split_winograd")
    found, state = _planned(net)
    assert [len(_maps(graph)) for graph in (before, found)] == [2, 0]
    kinds = [[s.tensor for s in n.stores] for n in found.nodes if n.stores]
    (first,), (second,), (once, again) = kinds
    assert first == second
    assert once == again
    assert any(" and " in d.taken for d in state.log if d.subject == first)


def test_a_part_that_no_kernel_makes_leaves_the_kernel():
    net = Net()
    tokens = net.dense(net.norm(net.input(1, 5, 8), 8), 8, 8)
    whole = net("Concat", net.weight(1, 1, 8), tokens, axis=1)
    net.output(net.dense(net.norm(whole, 8), 8, 4))
    found, _ = _planned(net)
    assert len(_maps(found)) == 1
    assert not any(n.stores for n in found.nodes)


@pytest.mark.parametrize(("start", "end", "step"), [(0, 9, 2), (8, -10, -1)])
def test_steps(start, end, step):
    """Every second row is no box of rows; rows that go back are."""
    net = Net()
    x = net.norm(net.dense(net.norm(net.input(1, 9, 8), 8), 8, 8), 8)
    how = [net.ints(start), net.ints(end), net.ints(1), net.ints(step)]
    net.output(net.dense(net.norm(net("Slice", x, *how), 8), 8, 4), net.dense(x, 8, 4))
    found, _ = _planned(net)
    assert len(_maps(found)) == (1 if step == 2 else 0)


def _resizes(graph: Graph) -> list[Node]:
    return [n for n in graph.nodes if "image.resize2d" in n.operators]
