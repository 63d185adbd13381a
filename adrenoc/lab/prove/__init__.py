"""Is a device right: every kernel family on it, what its driver gets wrong, and what helps."""
