"""Nodes to kernels, tensors to memory, and the program that launches them."""
