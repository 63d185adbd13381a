"""Any body, element by element."""
