"""Text of language models: tokens of it and back, and conversations as one text."""
