"""Would a kernel read an image that it writes?  OpenCL leaves undefined what it then reads.

Parts of a concatenation share one image, so a kernel that comes to read what another one read, or
to write what another one wrote, can get its own image among what it reads.  Each pass that joins
kernels after `join_blocks` asks here about the kernel that it would make.
"""

from __future__ import annotations

from adrenoc.ir.graph import Graph, Node
from adrenoc.ir.operand import Memory


def image_clash(graph: Graph, node: Node) -> str | None:
    """Return why the kernel of a node cannot be: what it reads lies in an image that it writes."""
    written = {
        graph.owner(name) for name in node.writes if graph.placements[name].memory is Memory.TEXTURE
    }
    name = next((name for name in node.inputs if graph.owner(name) in written), None)
    if name is None:
        return None
    return f"{node.name} reads {name} from the image that it writes, which OpenCL leaves undefined"
