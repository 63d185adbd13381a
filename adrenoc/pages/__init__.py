"""What people look at: pages of bundles, runs, differences and reports; reports to send."""
