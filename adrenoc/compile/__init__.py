"""A model file to a bundle: `make.py` is the door."""
