"""From a TFLite file to a network of integers."""
