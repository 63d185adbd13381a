"""Bundles in the form that app builds take: Android archives, a CMake package, a small app."""
