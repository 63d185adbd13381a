"""Words: names that are allowed, what is printed escaped, spelling, JSON."""
