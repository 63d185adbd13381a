"""How many examples properties are tried with.

The same few on every run, so that a run fails for what changed and for nothing else;
`ADRENOC_PROPERTY_EXAMPLES=200 pytest tests/host/test_property_graphs.py` draws new ones.
"""

import os

from hypothesis import HealthCheck, settings

_MANY = os.environ.get("ADRENOC_PROPERTY_EXAMPLES")

PROFILE = settings(
    max_examples=int(_MANY or 30),
    derandomize=_MANY is None,
    database=None,
    deadline=None,  # machines may be busy
    suppress_health_check=list(HealthCheck),
)


def examples(few: int) -> settings:
    """So many examples, or as many as the environment asks for."""
    return settings(PROFILE, max_examples=int(_MANY or few))
