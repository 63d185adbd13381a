"""Keys and values of earlier tokens: rows that are added in place, and attention over them."""
