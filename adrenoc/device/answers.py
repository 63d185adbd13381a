"""What the functions of a runtime answer, as forms that the answers of a server are held against.

A server is somebody else's program: what it answers has to be of the form that is read afterwards,
or the run ends with one sentence that names the function.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from adrenoc.base.text.json_text import read_json

if TYPE_CHECKING:
    from adrenoc.bundle.manifest import TensorSpec

# No count, size or time of a device is larger.
_MOST = 1 << 62
_LONGEST_TEXT = 1 << 16
_MOST_ITEMS = 1 << 20
_SHOWN_LETTERS = 200


class WrongAnswerError(RuntimeError):
    """What a server answered is of another form than what reads it expects."""


Form = Callable[[Any], bool]


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


def _anything(_: Any) -> bool:
    return True


def _is_module(value: Any) -> bool:
    import tvm

    return isinstance(value, tvm.runtime.Module)


def _is_tensor(value: Any) -> bool:
    import tvm

    return isinstance(value, tvm.runtime.Tensor)


def _is_content(value: Any) -> bool:
    return isinstance(value, bytes | bytearray)


def _items(form: Form) -> Form:
    """Return a list of values of one form."""
    return lambda value: (
        isinstance(value, list) and len(value) <= _MOST_ITEMS and all(map(form, value))
    )


def _row(*forms: Form) -> Form:
    """Return a list with a value of each of these forms."""
    return lambda value: (
        isinstance(value, list)
        and len(value) == len(forms)
        and all(form(item) for form, item in zip(forms, value, strict=True))
    )


def _keys(needed: Mapping[str, Form], others: Mapping[str, Form] | None = None) -> Form:
    """Return an object with these keys, perhaps those `others`, and whatever a newer runtime
    adds."""
    return lambda value: (
        isinstance(value, dict)
        and all(key in value and form(value[key]) for key, form in needed.items())
        and all(form(value[key]) for key, form in (others or {}).items() if key in value)
    )


def _only(needed: Mapping[str, Form]) -> Form:
    """Return an object with these keys and no others."""
    whole = _keys(needed)
    return lambda value: whole(value) and value.keys() == needed.keys()


def _json(form: Form) -> Form:
    """Return a text in JSON that holds a value of a form."""

    def fits(value: Any) -> bool:
        if not isinstance(value, str):
            return False
        try:
            return form(read_json(value))
        except ValueError:
            return False

    return fits


_LIMITS = ("max_work_group_size", "local_memory_bytes", "global_memory_bytes")
_DEVICE = _keys(
    {
        **dict.fromkeys(("name", "driver", "platform"), _is_text),
        "c_version": _is_count,
        "fp16": _is_flag,
        "images": lambda value: (
            _keys({"supported": _is_flag})(value)
            and (
                not value["supported"]
                or _keys(dict.fromkeys(("max_width", "max_height", "max_layers"), _is_count))(value)
            )
        ),
        "limits": _keys(
            dict.fromkeys(_LIMITS, _is_count), {"max_work_item_sizes": _row(*(_is_count,) * 3)}
        ),
    },
    {**dict.fromkeys(("vendor", "version", "type"), _is_text), "extensions": _items(_is_text)},
)
_REGION = {
    **dict.fromkeys(("symbol", "reason", "library", "versions", "tuning"), _is_text),
    **dict.fromkeys(("operators", "border_copies", "inner_copies", "memory_bytes"), _is_count),
    **dict.fromkeys(("used", "recorded"), _is_flag),
}
_ENDINGS = ("", "end", "most", "full", "stopped")
"""Why a decoder makes no more tokens."""
FORMS: dict[str, Form] = {
    "adrenoc.clml.regions": _json(_items(_keys(_REGION, {"shared": _is_count}))),
    "adrenoc.clml.switch_off": _anything,
    "adrenoc.opencl.absent_devices": _is_text,
    "adrenoc.opencl.bind_run": _is_module,
    "adrenoc.opencl.build_all": _anything,
    "adrenoc.opencl.build_finish": _json(
        _keys(dict.fromkeys(("hits", "misses", "damaged"), _is_count), {"unsaved": _is_text})
    ),
    "adrenoc.opencl.build_is_done": _is_flag,
    "adrenoc.opencl.build_start": _is_count,
    "adrenoc.opencl.devices": _json(_items(_DEVICE)),
    "adrenoc.opencl.diagnose": _json(
        _keys({}, {"text": _is_text, "memory_short": _is_flag, "refusal": _anything})
    ),
    "adrenoc.opencl.hints": _json(
        _items(_only(dict.fromkeys(("hint", "asked", "given_by", "reason"), _is_text)))
    ),
    "adrenoc.opencl.memory_stats": _json(
        _keys(dict.fromkeys(("allocated_bytes", "peak_bytes"), _is_count))
    ),
    "adrenoc.opencl.profile_start": _anything,
    "adrenoc.opencl.profile_stop": _json(_items(_row(_is_text, _is_count, _is_count))),
    "adrenoc.opencl.program_file": _is_content,
    "adrenoc.opencl.program_names": _json(_items(_is_text)),
    "adrenoc.opencl.release_pool": _anything,
    "adrenoc.opencl.set_hints": _anything,
    "adrenoc.opencl.tokens": _is_module,
    "adrenoc.runtime.gpu_state": _json(
        _keys(
            {},
            {
                **dict.fromkeys(("model", "governor"), _is_text),
                **dict.fromkeys(("clock_hz", "max_clock_hz", "temperature_mc"), _is_number),
            },
        )
    ),
    "adrenoc.runtime.machine": _is_text,
    "adrenoc.runtime.version": _is_text,
    "adrenoc.store.has": _is_flag,
    "adrenoc.store.keep": _anything,
    "adrenoc.store.load_module": _is_module,
    "adrenoc.store.tensor": _is_tensor,
    "adrenoc.trials.is_built": _is_flag,
    "adrenoc.trials.keep": _anything,
    "adrenoc.trials.measure": _json(
        lambda value: (
            _keys({"times_us": _items(_items(_is_number)), "errors": _items(_is_number)})(value)
            or _keys({"refused": _is_text, "index": _is_number, "detail": _is_text})(value)
        )
    ),
    "adrenoc.trials.repeat": _anything,
    "adrenoc.trials.start": _is_count,
    "report": _json(
        _only(
            {
                **dict.fromkeys(("mode", "reason"), _is_text),
                **dict.fromkeys(("launches", "api_calls"), _is_count),
                "host_ms": _is_number,
            }
        )
    ),
    "run": _anything,
    **dict.fromkeys(
        ("add_entry", "clear", "restore", "rewind", "start", "stop", "take_in"), _anything
    ),
    "length": _is_count,
    **dict.fromkeys(("logits", "save"), _is_content),
    "guessed": _json(_only(dict.fromkeys(("runs", "tokens"), _is_count))),
    "next": _json(_only({"tokens": _items(_is_count), "ended": _ENDINGS.__contains__})),
    "tvm.rpc.server.load_module": _is_module,
    "vm.builtin.tuple_getitem": _is_tensor,
}
"""The form of each function's answers by its name; functions of a module that `bind_run` or
`tokens` made go by their name in it."""


def check_answers(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of a server whose answers are of its form.

    Raises:
        WrongAnswerError: from the function, where one is not.
    """
    return lambda *words: check_answer(name, function(*words))


def check_answer(name: str, answer: Any) -> Any:
    """Return what the function of that name answered.

    Raises:
        WrongAnswerError: it is of another form.
    """
    if not FORMS[name](answer):
        shown = answer if isinstance(answer, str) else f"a value of {type(answer).__name__}"
        raise WrongAnswerError(f"{name} answered {json.dumps(shown)[:_SHOWN_LETTERS]}")
    return answer


def check_output(spec: TensorSpec, tensor: Any) -> Any:
    """Return a tensor of a server that is the output `spec` of a bundle.

    Raises:
        WrongAnswerError: it is not.
    """
    if not _is_tensor(tensor):
        raise WrongAnswerError(f"the output `{spec.name}` is a value of {type(tensor).__name__}")
    shape, dtype = tuple(int(extent) for extent in tensor.shape), str(tensor.dtype)
    if shape != spec.shape or dtype != spec.dtype:
        raise WrongAnswerError(
            f"the output `{spec.name}` is {dtype} {list(shape)}, "
            f"expected {spec.dtype} {list(spec.shape)}"
        )
    return tensor
