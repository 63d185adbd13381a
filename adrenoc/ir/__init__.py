"""The planning graph: tensors, nodes, layouts, memory."""
