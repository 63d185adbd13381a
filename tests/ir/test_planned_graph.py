"""The planned graph for Model Explorer: every launch once, joined as the plan joins them."""

from pathlib import Path

import pytest

from adrenoc.base.reporter import SilentReporter
from adrenoc.check.check_model import check_model
from adrenoc.check.verdict import Policy, Verdict
from adrenoc.ir.options import resolve_options
from adrenoc.pages.planned_graph.planned_nodes import PLACE_COLOURS, list_planned_nodes
from adrenoc.target.target import load_target
from tests.models import write_network

PACKAGE = "adrenoc.pages.planned_graph"


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """A network with residual connections."""
    folder = tmp_path_factory.mktemp("planned")
    return write_network(folder, "resnet18", size=32, width=0.25)


@pytest.fixture(scope="module")
def verdict(model) -> Verdict:
    """The plan of it."""
    target = load_target("adreno:750")
    options = resolve_options(target).options
    return check_model(
        model, target=target, options=options, policy=Policy(), reporter=SilentReporter()
    )


def test_every_launch_is_a_node_that_names_its_place(verdict):
    nodes = list_planned_nodes(verdict)
    assert [node.id for node in nodes][-len(verdict.nodes) :] == [n.tensor for n in verdict.nodes]
    assert len({node.id for node in nodes}) == len(nodes)
    for node, planned in zip(nodes[-len(verdict.nodes) :], verdict.nodes, strict=True):
        assert node.colour == PLACE_COLOURS[planned.place]
        assert dict(node.facts)["kernel"] == planned.kernel
        assert dict(node.output)["tensor_name"] == planned.tensor


def test_edges_lead_from_nodes_that_are_drawn(verdict):
    nodes = list_planned_nodes(verdict)
    drawn: set[str] = set()
    for node in nodes:
        assert set(node.reads) <= drawn
        drawn.add(node.id)
    assert any(len(node.reads) > 1 for node in nodes)  # the residuals


def test_the_tool_loads_the_adapter(model, verdict):
    manager = pytest.importorskip("model_explorer.extension_manager")
    explorer = manager.ExtensionManager([PACKAGE])
    explorer.load_extensions()
    command = {"extensionId": "adrenoc", "cmdId": "convert", "modelPath": str(model)}
    (graph,) = explorer.run_cmd({**command, "settings": {"device": "adreno:750"}})["graphs"]
    assert graph["id"] == "adreno:a750, mixed"
    nodes = {node["id"]: node for node in graph["nodes"]}
    assert set(nodes) >= {node.tensor for node in verdict.nodes}
    edges = [edge["sourceNodeId"] for n in nodes.values() for edge in n["incomingEdges"]]
    assert len(edges) == sum(len(node.reads) for node in verdict.nodes)
    assert set(edges) <= set(nodes)
