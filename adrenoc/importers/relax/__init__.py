"""Relax IR as the importers, the rewrites and the CLML matcher read it."""
