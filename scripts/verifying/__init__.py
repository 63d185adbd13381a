"""What `scripts/verify KIND` runs: one module a kind."""
