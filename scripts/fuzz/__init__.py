"""Parts of scripts/fuzz_models."""
