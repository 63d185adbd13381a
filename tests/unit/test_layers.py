"""What imports do not show of the package's structure; those are kept by `lint-imports`."""

from __future__ import annotations

from tests.sources import attributes


def test_few_files_read_the_environment() -> None:
    """Loaders set what the OpenCL library, TVM, NumPy, onnxruntime and tokenizers read; nobody else
    touches any."""
    users = {str(path) for path, names in attributes().items() if names & {"environ", "getenv"}}
    loaders = {
        "base/host/one_thread.py",
        "base/host/onnx_runtime.py",
        "compile/load_tvm.py",
        "device/tokenizer_process.py",
        "native/__init__.py",
    }
    assert users == {"base/files/read.py", "base/host/variables.py", *loaders}
