"""What a person asks before shipping: does it compile, is it right, where do numbers go wrong."""
