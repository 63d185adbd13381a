"""Opens models in onnxruntime with adrenoc's provider, one after another in one process.

    python ort_nodes.py LIBRARY OPTIONS FOLDER...

Each folder holds `case_ctx.onnx` and `in.npz`, whose arrays are the inputs in order; what comes out
is written there as `out.npz`, or what an exception said as `error.txt`.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort
from ort_program import ERRORS, register


def main() -> None:
    library, options, *folders = sys.argv[1:]
    devices = register(library)
    for folder in map(Path, folders):
        session_options = ort.SessionOptions()
        session_options.add_provider_for_devices(devices, json.loads(options))
        try:
            session = ort.InferenceSession(folder / "case_ctx.onnx", session_options)
            with np.load(folder / "in.npz") as held:
                arrays = [held[key] for key in held.files]
            names = [one.name for one in session.get_inputs()]
            outputs = session.run(None, dict(zip(names, arrays, strict=True)))
        except ERRORS as error:
            (folder / "error.txt").write_text(str(error))
            continue
        np.savez(folder / "out.npz", *outputs)


if __name__ == "__main__":
    main()
