"""Relax to the planning graph, and what is learned of it before anything changes."""
