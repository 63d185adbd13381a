"""The sources as the oldest NDKs that are supported compile them: an old clang, an old libc++.

NDK r23 to r25 bring the libc++ of LLVM 11 to 14, which refuses things that newer ones take.
"""

import pytest

from tests.runtime.runtime_units import UNITS, check_syntax

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit(tmp_path, unit):
    write, warning = UNITS[unit]
    check_syntax(write(tmp_path), warning, ["-stdlib=libc++"])
