"""Names of the operators that a convolution by Winograd's algorithm is split into."""

from __future__ import annotations

MULTIPLY, PIXELS, TILES = "winograd_multiply", "winograd_pixels", "winograd_tiles"

WHOLE = "winograd_conv"
"""All three in one kernel."""
