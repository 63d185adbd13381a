"""Checks of what was made: graph, launches, memory, module, kernel texts."""
