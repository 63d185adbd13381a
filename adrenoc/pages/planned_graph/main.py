"""The adapter: models are planned as `adrenoc check` plans them, and drawn launch by launch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from model_explorer import Adapter, AdapterMetadata, ModelExplorerGraphs
from model_explorer.graph_builder import (
    Graph,
    GraphNode,
    GraphNodeStyle,
    IncomingEdge,
    KeyValue,
    MetadataItem,
)

from adrenoc.base.reporter import SilentReporter
from adrenoc.check.check_model import check_model
from adrenoc.check.verdict import Policy
from adrenoc.ir.options import resolve_options
from adrenoc.pages.planned_graph.planned_nodes import PlannedNode, list_planned_nodes
from adrenoc.target.target import load_target

_DEVICE = "adreno"


class PlannedGraph(Adapter):
    """Kernels of a model on an Adreno, where each lies, and what each moves and takes at least."""

    metadata = AdapterMetadata(
        id="adrenoc",
        name="adrenoc: planned graph",
        description="The kernels that adrenoc would launch for an Adreno GPU.",
        fileExts=["onnx", "tflite"],
    )

    def convert(self, model_path: str, settings: dict[str, Any]) -> ModelExplorerGraphs:
        """Plan the model; `settings` may name a `device` and a `preset`. Raises AdrenocError where
        the file is damaged, an operator or a shape is not supported, ..."""
        target = load_target(settings.get("device") or _DEVICE)
        verdict = check_model(
            Path(model_path),
            target=target,
            options=resolve_options(target, preset=settings.get("preset") or None).options,
            policy=Policy(),
            reporter=SilentReporter(),
        )
        nodes = [_draw(node) for node in list_planned_nodes(verdict)]
        return {"graphs": [Graph(id=f"{target.name}, {verdict.preset}", nodes=nodes)]}


def _draw(node: PlannedNode) -> GraphNode:
    return GraphNode(
        id=node.id,
        label=node.label,
        style=GraphNodeStyle(backgroundColor=node.colour),
        attrs=[KeyValue(key=name, value=value) for name, value in node.facts],
        incomingEdges=[IncomingEdge(sourceNodeId=source) for source in node.reads],
        outputsMetadata=[
            MetadataItem(id="0", attrs=[KeyValue(key=k, value=v) for k, v in node.output])
        ],
    )
