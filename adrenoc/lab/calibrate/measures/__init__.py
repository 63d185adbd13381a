"""The measures, a small file for each kind."""
