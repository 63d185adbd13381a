"""Which tests fail on a driver for a reason of its own: the rows of `known.toml`."""

from pathlib import Path

from adrenoc.base.files.read import read_toml

_TABLE = Path(__file__).with_name("known.toml")


def known_failures(driver: str) -> dict[str, str]:
    """Test -> why it fails on a driver, by the driver's name in `/etc/OpenCL/vendors`."""
    return {
        test: f"{driver}: {row['reason']}"
        for row in read_toml(_TABLE).get(driver, ())
        for test in row["tests"]
    }


def known_drivers() -> tuple[str, ...]:
    """The drivers that the table knows something of."""
    return tuple(read_toml(_TABLE))
