"""Relax to Relax, before planning: `simplify` and `order_channels`."""
