"""Questions about a graph that several passes ask."""
