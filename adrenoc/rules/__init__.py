"""Schedule rules: from a node of the planned graph to the kernel that computes it."""
