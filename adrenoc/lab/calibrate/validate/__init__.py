"""Whether the model chooses right: layers, all their schedules, and the times of them."""
