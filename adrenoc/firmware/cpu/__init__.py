"""Int8 networks on application processors: C with vector code, its library, and runs of it."""
