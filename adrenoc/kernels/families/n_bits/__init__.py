"""Products by constant matrices that stay in 4 bits."""
