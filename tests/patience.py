"""How long tests wait for what has to come: a limit for what hangs, and not for what is slow."""

WAIT_S = 600.0
