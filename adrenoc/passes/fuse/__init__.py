"""What becomes one kernel."""
