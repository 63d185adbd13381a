"""What several families use: contexts, cost models, geometry, weights."""
