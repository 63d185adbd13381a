"""Matrix products, and products of few vectors."""
