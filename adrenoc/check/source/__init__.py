"""A decoder beside the same one with more bits: how far apart they are, and by which weights."""
