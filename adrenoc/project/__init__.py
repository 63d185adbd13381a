"""A whole build: what `adrenoc.toml` lists, compiled side by side and held against its lock."""
