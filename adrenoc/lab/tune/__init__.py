"""Search the schedules of a model's kernels on real devices."""
