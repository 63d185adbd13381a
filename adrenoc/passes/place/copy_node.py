"""The node that copies a tensor, wherever two places of it do not agree."""

from __future__ import annotations

from adrenoc.base.tvmapi import BufferLoad, Var, decl_buffer
from adrenoc.ir.body import Body
from adrenoc.ir.graph import Node, Tensor


def copy_node(source: str, target: Tensor, kind: str) -> Node:
    """Return a map that copies one tensor element by element."""
    axes = tuple(Var(f"i{a}", "int32") for a in range(len(target.shape)))
    buffer = decl_buffer(target.shape, target.dtype, name="copied")
    body = Body(axes=axes, value=BufferLoad(buffer, list(axes)), sources={buffer: source})
    return Node(
        name=target.name,
        op="map",
        inputs=(source,),
        output=target.name,
        body=body,
        fused=(kind,),
    )
