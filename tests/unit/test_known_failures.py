"""The table of what fails on other drivers names tests that are there."""

from pathlib import Path

from tests.opencl.known import known_drivers, known_failures

ROOT = Path(__file__).parents[2]


def test_known_failures_are_tests():
    assert known_drivers() == ("rusticl",)
    for driver in known_drivers():
        known = known_failures(driver)
        assert known
        for test, why in known.items():
            path, _, name = test.partition("::")
            assert f"def {name.partition('[')[0]}(" in (ROOT / path).read_text(), test
            assert why.startswith(f"{driver}: ")
    assert known_failures("") == {}
