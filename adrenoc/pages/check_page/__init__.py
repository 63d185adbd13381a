"""A verdict as one HTML file that a person can look at in any browser, without a network."""
