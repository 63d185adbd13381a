"""Layouts, memory, and copies where two disagree."""
