"""Fit what estimates reckon with (`targets/cost/`) to times that were measured."""
