"""A language model behind the HTTP API that OpenAI's clients speak."""
