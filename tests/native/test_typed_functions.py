"""Functions of the runtime that Python calls by name: wrong arguments are told in one sentence."""

import re

import pytest
import tvm_ffi

from adrenoc import native


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("high",), 'The function "adrenoc.opencl.set_hints" was given 1 arguments, expected 2'),
        (
            ("high", 3),
            'Argument 1 of the function "adrenoc.opencl.set_hints" is of the type int, '
            "expected str",
        ),
    ],
)
def test_wrong_arguments(arguments, said):
    native.load()
    with pytest.raises(TypeError, match=re.escape(said)):
        tvm_ffi.get_global_func("adrenoc.opencl.set_hints")(*arguments)
