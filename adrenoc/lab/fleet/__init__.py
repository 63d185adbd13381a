"""Many devices at once: one command each at a time, side by side, kept so that it can go on."""
