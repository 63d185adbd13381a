"""Every error class: a code of its own, and a place that raises it."""

import re

from adrenoc.base.errors import AdrenocError
from tests.sources import texts


def _subclasses(kind: type[AdrenocError]) -> list[type[AdrenocError]]:
    direct = kind.__subclasses__()
    return direct + [deeper for subclass in direct for deeper in _subclasses(subclass)]


def test_all_live_in_one_module_with_codes_of_their_own():
    kinds = [AdrenocError, *_subclasses(AdrenocError)]
    assert {kind.__module__ for kind in kinds} == {"adrenoc.base.errors"}
    codes = [vars(kind)["exit_code"] for kind in kinds]
    assert len(set(codes)) == len(codes)
    assert min(codes) >= 10
    # Above 125 a shell reads signals and its own failures.
    assert max(codes) < 126


def test_every_one_is_raised_somewhere():
    made = {name for text in texts().values() for name in re.findall(r"(?<!class )\b(\w+)\(", text)}
    unused = {kind.__name__ for kind in _subclasses(AdrenocError)} - made
    assert not unused, f"never raised: {unused}"


def test_message_and_hint_are_kept():
    error = AdrenocError("what and where", hint="adrenoc doctor")
    assert str(error) == error.message == "what and where"
    assert error.hint == "adrenoc doctor"
