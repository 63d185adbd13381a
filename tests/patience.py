"""How long tests wait for what has to come: a limit for what hangs, and not for what is slow."""

from pathlib import Path

WAIT_S = 600.0


def is_running(process: int) -> bool:
    """Whether there is such a process; one that has ended and that nobody asked is none."""
    try:
        state = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return state.rpartition(")")[2].split()[0] != "Z"
