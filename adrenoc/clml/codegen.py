"""Regions -> runtime modules of kind "clml", and the constants that they are started with.

The modules are made by the native runtime (`runtime.clml_runtime_create`), since TVM's wheel has
no such kind.  TVM links them as it links those of its own code generators: the module is given
them with the attributes `external_mods` and `const_name_to_constant`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi

from adrenoc import native
from adrenoc.clml.document import document_text
from adrenoc.clml.region import Region


def attach_regions(module: tvm.IRModule, regions: Sequence[Region]) -> tvm.IRModule:
    """Return the module with what TVM needs to link the regions; the same where there are none.

    Raises:
        DependencyError: the native runtime cannot be built (it needs a C++ compiler).
    """
    if not regions:
        return module
    constants = {
        name: tvm.runtime.tensor(value) for region in regions for name, value in region.constants()
    }
    return module.with_attrs(
        {
            "external_mods": [runtime_module(region) for region in regions],
            "const_name_to_constant": constants,
        }
    )


def runtime_module(region: Region) -> Any:
    """Return the module of one region."""
    native.load()
    create = tvm_ffi.get_global_func("runtime.clml_runtime_create")
    names = [name for name, _ in region.constants()]
    return create(region.symbol, document_text(region), names)
