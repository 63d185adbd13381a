"""What people look at: a bundle as a page, what changed between two, runs held side by side."""
