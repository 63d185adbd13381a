"""Bundles on disk: manifest, constants, archive, shapes."""
