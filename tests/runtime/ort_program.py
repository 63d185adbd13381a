"""Runs one deed in onnxruntime with adrenoc's provider, in a process that has no TVM.

    python ort_program.py DEED LIBRARY MODEL OPTIONS FILE...

A file of each input in order (`.npy`), and behind them one for each output.  Prints JSON.
"""

import json
import sys
import threading
import time
from collections.abc import Callable

import numpy as np
import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as state

NAME = "AdrenocExecutionProvider"
ERRORS = (
    state.EPFail,
    state.Fail,
    state.InvalidArgument,
    state.InvalidGraph,
    state.NoModel,
    state.NoSuchFile,
    state.NotImplemented,
    state.RuntimeException,
)


def register(library: str) -> list[ort.OrtEpDevice]:
    """Register the library and return its devices."""
    ort.register_execution_provider_library("adrenoc", library)
    return [device for device in ort.get_ep_devices() if device.ep_name == NAME]


def open_session(library: str, model: str, more: dict[str, str]) -> ort.InferenceSession:
    """Open a session by the provider; options with a dot are the session's own."""
    options = ort.SessionOptions()
    own = {key: value for key, value in more.items() if "." not in key}
    for key in more.keys() - own.keys():
        options.add_session_config_entry(key, more[key])
    options.add_provider_for_devices(register(library), own)
    return ort.InferenceSession(model, options)


def feeds(session: ort.InferenceSession, files: list[str]) -> dict[str, np.ndarray]:
    names = [one.name for one in session.get_inputs()]
    return {name: np.load(file) for name, file in zip(names, files, strict=False)}


def run(session: ort.InferenceSession, files: list[str]) -> dict[str, object]:
    """Run three times, and write the outputs."""
    given = feeds(session, files)
    for _ in range(3):
        outputs = session.run(None, given)
    for file, output in zip(files[len(given) :], outputs, strict=True):
        np.save(file, output)
    # One alone, which is another call: the rest is computed and not moved.
    alone = session.run([session.get_outputs()[-1].name], given)[0]
    assert alone.tobytes() == outputs[-1].tobytes()
    return {"inputs": [list(one.shape) for one in session.get_inputs()]}


def threads(session: ort.InferenceSession, files: list[str]) -> dict[str, object]:
    """Four threads on one session, each with inputs of its own."""
    given = feeds(session, files)
    inputs = [{name: array + i for name, array in given.items()} for i in range(4)]
    expected = [session.run(None, one) for one in inputs]
    wrong: list[int] = []

    def work(place: int) -> None:
        for _ in range(20):
            for one, other in zip(session.run(None, inputs[place]), expected[place], strict=True):
                if one.tobytes() != other.tobytes():
                    wrong.append(place)

    started = [threading.Thread(target=work, args=(place,)) for place in range(4)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    return {"wrong": wrong}


def said_by(work: Callable[[], object]) -> str:
    """What an exception says; empty where there is none."""
    try:
        work()
    except ERRORS as error:
        return str(error)
    return ""


def ends(session: ort.InferenceSession, files: list[str]) -> dict[str, object]:
    """Runs that a deadline ends, or a dynamic option from another thread, and one after them."""
    session.disable_fallback()
    given = feeds(session, files)
    expected = session.run(None, given)
    start = time.perf_counter()
    session.run(None, given)
    whole_s = time.perf_counter() - start

    def run_for(text: str) -> str:
        options = ort.RunOptions()
        options.add_run_config_entry("adrenoc.deadline_ms", text)
        return said_by(lambda: session.run(None, given, options))

    late = ""
    for tries in range(64):
        late = late or run_for(str(whole_s * 1e3 * (1 + tries % 8) / 16))
    cancelled = ""
    for tries in range(64):
        timer = threading.Timer(
            whole_s * (tries % 8) / 16,
            lambda: session.set_ep_dynamic_options({"ep.adrenoc.cancel": "1"}),
        )
        timer.start()
        cancelled = cancelled or said_by(lambda: session.run(None, given))
        timer.join()
    assert run_for("1e9") == ""
    after = session.run(None, given)
    return {
        "late": late,
        "cancelled": cancelled,
        "odd": run_for("soon"),
        "right": all(a.tobytes() == b.tobytes() for a, b in zip(after, expected, strict=True)),
    }


def unregister(session: ort.InferenceSession, files: list[str]) -> dict[str, object]:
    """A session that outlives its library's registration."""
    given = feeds(session, files)
    expected = session.run(None, given)
    ort.unregister_execution_provider_library("adrenoc")
    after = session.run(None, given)
    return {"right": all(a.tobytes() == b.tobytes() for a, b in zip(after, expected, strict=True))}


def show(session: ort.InferenceSession, _files: list[str]) -> dict[str, object]:
    return {"inputs": [one.name for one in session.get_inputs()]}


def generate(session: ort.InferenceSession, files: list[str]) -> dict[str, object]:
    """Tokens of a decoder, whose caches the session keeps, after a prompt; what is refused."""
    prompt = np.load(files[0])
    names = [one.name for one in session.get_inputs()]
    beside = {name: np.load(file) for name, file in zip(names[2:], files[1:], strict=True)}

    def given_to(tokens: list[int], mask: list[int]) -> dict[str, np.ndarray]:
        own = {"input_ids": tokens, "attention_mask": mask}
        return {**beside, **{name: np.array([row], "int64") for name, row in own.items()}}

    def step(tokens: list[int], mask: list[int]) -> np.ndarray:
        return session.run(["logits"], given_to(tokens, mask))[0]

    def make(tokens: list[int], so_far: int, count: int) -> list[int]:
        """Greedy tokens after these, the last of `so_far`."""
        made = [int(step(tokens, [1] * so_far)[0, -1].argmax())]
        while len(made) < count:
            made.append(int(step(made[-1:], [1] * (so_far + len(made)))[0, -1].argmax()))
        return made

    tokens, held = prompt.tolist(), len(prompt)
    made = make(tokens, held, 20)
    # Five of them again, from where there were two; in a mask that has zeros behind.
    again = make(made[2:4], held + 4, 5)
    padded = step(tokens, [1] * held + [0] * 9)
    session.disable_fallback()
    refused = {
        "gap": lambda: step([1], [1] * (held + 3)),
        "hidden": lambda: step(tokens, [0] + [1] * held),
        "short": lambda: step(tokens, [1]),
        "none": lambda: step([], [1] * held),
        "odd": lambda: step([-5], [1]),
        "batch": lambda: session.run(
            None, {**given_to([1], [1]), "input_ids": np.ones((2, 1), "int64")}
        ),
        "full": lambda: step([1] * 1000, [1] * 1000),
    }
    return {
        "tokens": made,
        "again": again,
        "padded": int(padded[0, -1].argmax()),
        "shape": list(padded.shape),
        "refused": {name: said_by(work) for name, work in refused.items()},
        "after": make(tokens, held, 3),
    }


DEEDS = {
    "ends": ends,
    "generate": generate,
    "open": show,
    "run": run,
    "threads": threads,
    "unregister": unregister,
}


def main() -> None:
    deed, library, model, options, *files = sys.argv[1:]
    try:
        told = DEEDS[deed](open_session(library, model, json.loads(options)), files)
    except ERRORS as error:
        told = {"error": str(error), "kind": type(error).__name__}
    print(json.dumps({**told, "tvm": sorted({"tvm", "tvm_ffi"} & sys.modules.keys())}))


if __name__ == "__main__":
    main()
