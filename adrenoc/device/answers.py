"""What the functions of a runtime answer, as forms that the answers of a server are held against.

A server is somebody else's program: what it answers has to be of the form that is read afterwards,
or the run ends with one sentence that names the function.
"""

import json
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

from adrenoc.base.text.json_text import read_json
from adrenoc.bundle.manifest import TensorSpec

# No count, size or time of a device is larger.
_MOST = 1 << 62
_LONGEST_TEXT = 1 << 16
_MOST_ITEMS = 1 << 20
_SHOWN_LETTERS = 200


class WrongAnswerError(RuntimeError):
    """What a server answered is of another form than what reads it expects."""


Form: TypeAlias = "Callable[[Any], bool] | dict[str, Form] | list[Form] | tuple[Form, ...]"
"""What holds of a value: of an object by its keys, those with a `?` perhaps; of each item of a list
by the one form in it; of a list of so many values by a tuple."""


class _Only(dict[str, Form]):
    """The form of an object that has no other keys: a record is made of it."""


class _Either(list[Form]):
    """A value of one of these forms."""


def _fits(form: Form, value: Any) -> bool:
    if isinstance(form, _Either):
        return any(_fits(one, value) for one in form)
    if isinstance(form, dict):
        if not isinstance(value, dict) or (isinstance(form, _Only) and form.keys() != value.keys()):
            return False
        named = ((key.rstrip("?"), part) for key, part in form.items())
        return all(
            _fits(part, value[name]) if name in value else f"{name}?" in form
            for name, part in named
        )
    if isinstance(form, list):
        is_list = isinstance(value, list) and len(value) <= _MOST_ITEMS
        return is_list and all(_fits(form[0], item) for item in value)
    if isinstance(form, tuple):
        is_row = isinstance(value, list) and len(value) == len(form)
        return is_row and all(map(_fits, form, value))
    return form(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST_TEXT


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool) or value in (0, 1)


def _is_number(value: Any) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return math.isfinite(value) and abs(value) <= _MOST


def _is_module(value: Any) -> bool:
    import tvm

    return isinstance(value, tvm.runtime.Module)


def _is_tensor(value: Any) -> bool:
    import tvm

    return isinstance(value, tvm.runtime.Tensor)


def _is_content(value: Any) -> bool:
    return isinstance(value, bytes | bytearray)


def _all_are(form: Form, *names: str) -> dict[str, Form]:
    return dict.fromkeys(names, form)


_DEVICE: Form = {
    **_all_are(_is_text, "name", "driver", "platform", "vendor?", "version?", "type?"),
    "c_version": _is_count,
    "fp16": _is_flag,
    "images": _Either(
        (
            {"supported": lambda value: value in (False, 0)},
            {"supported": _is_flag, **_all_are(_is_count, "max_width", "max_height", "max_layers")},
        )
    ),
    "limits": {
        **_all_are(_is_count, "max_work_group_size", "local_memory_bytes", "global_memory_bytes"),
        "max_work_item_sizes?": (_is_count, _is_count, _is_count),
    },
    "extensions?": [_is_text],
}
_REGION: Form = {
    **_all_are(_is_text, "symbol", "reason", "library", "versions", "tuning"),
    **_all_are(_is_count, "operators", "border_copies", "inner_copies", "memory_bytes", "shared?"),
    **_all_are(_is_flag, "used", "recorded"),
}
_ENDINGS = ("", "end", "most", "full", "stopped")
"""Why a decoder makes no more tokens."""
FORMS: dict[str, Form] = {
    **_all_are(_is_count, "adrenoc.opencl.build_start", "adrenoc.trials.start", "length"),
    **_all_are(_is_text, "adrenoc.runtime.machine", "adrenoc.runtime.version"),
    **_all_are(_is_text, "adrenoc.opencl.absent_devices"),
    **_all_are(_is_flag, "adrenoc.opencl.build_is_done", "adrenoc.trials.is_built"),
    **_all_are(_is_flag, "adrenoc.store.has"),
    **_all_are(_is_module, "adrenoc.opencl.bind_run", "adrenoc.opencl.tokens"),
    **_all_are(_is_module, "adrenoc.store.load_module", "tvm.rpc.server.load_module"),
    **_all_are(_is_tensor, "adrenoc.store.tensor", "vm.builtin.tuple_getitem"),
    **_all_are(_is_content, "adrenoc.opencl.program_file", "logits", "save"),
    "adrenoc.clml.regions": [_REGION],
    "adrenoc.opencl.build_finish": {
        **_all_are(_is_count, "hits", "misses", "damaged"),
        "unsaved?": _is_text,
        "built_ins?": _is_text,
    },
    "adrenoc.opencl.devices": [_DEVICE],
    "adrenoc.opencl.diagnose": {"text?": _is_text, "memory_short?": _is_flag},
    "adrenoc.opencl.hints": [_Only(_all_are(_is_text, "hint", "asked", "given_by", "reason"))],
    "adrenoc.opencl.memory_stats": _all_are(_is_count, "allocated_bytes", "peak_bytes"),
    "adrenoc.opencl.profile_stop": [(_is_text, _is_count, _is_count)],
    "adrenoc.opencl.program_names": [_is_text],
    "adrenoc.runtime.gpu_state": {
        **_all_are(_is_text, "model?", "governor?"),
        **_all_are(_is_number, "clock_hz?", "max_clock_hz?", "temperature_mc?"),
    },
    "adrenoc.trials.measure": _Either(
        (
            {"times_us": [[_is_number]], "errors": [_is_number]},
            {"refused": _is_text, "index": _is_number, "detail": _is_text},
        )
    ),
    "report": _Only(
        {
            **_all_are(_is_text, "mode", "reason"),
            **_all_are(_is_count, "launches", "api_calls"),
            "host_ms": _is_number,
        }
    ),
    "guessed": _Only(_all_are(_is_count, "runs", "tokens")),
    "next": _Only({"tokens": [_is_count], "ended": _ENDINGS.__contains__}),
}
"""The form of each function's answers by its name, of those that anybody reads; one of an object or
a list comes as JSON.  Functions of a module that `bind_run` or `tokens` made go by their name in
it."""


def check_answers(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of a server whose answers are of its form. Raises WrongAnswerError from the
    function, where one is not."""
    return lambda *words: check_answer(name, function(*words))


def check_answer(name: str, answer: Any) -> Any:
    """Return what the function of that name answered. Raises WrongAnswerError where it is of
    another form."""
    form = FORMS.get(name)
    value = answer
    if isinstance(form, dict | list):
        with suppress(ValueError, TypeError):
            value = read_json(answer)
    if form is not None and not _fits(form, value):
        shown = answer if isinstance(answer, str) else f"a value of {type(answer).__name__}"
        raise WrongAnswerError(f"{name} answered {json.dumps(shown)[:_SHOWN_LETTERS]}")
    return answer


def check_output(spec: TensorSpec, tensor: Any) -> Any:
    """Return a tensor of a server that is the output `spec` of a bundle. Raises WrongAnswerError
    where it is not."""
    if not _is_tensor(tensor):
        raise WrongAnswerError(f"the output `{spec.name}` is a value of {type(tensor).__name__}")
    shape, dtype = tuple(int(extent) for extent in tensor.shape), str(tensor.dtype)
    if shape != spec.shape or dtype != spec.dtype:
        raise WrongAnswerError(
            f"the output `{spec.name}` is {dtype} {list(shape)}, "
            f"expected {spec.dtype} {list(spec.shape)}"
        )
    return tensor
