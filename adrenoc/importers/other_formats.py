"""What files are that are neither ONNX nor TFLite, and how to come to one that is."""

from __future__ import annotations

from pathlib import Path

EXPORT_AGAIN = "export or download the model again"
"""What to do about a damaged model."""

_GGUF_MAGIC = b"GGUF"


def describe_other(path: Path, head: bytes, why: str) -> str:
    """Return what a file is by its first bytes; `why` it is no model, where these tell nothing."""
    if head.startswith(b"version https://git-lfs"):
        return f"{path} is a Git LFS pointer, not the model itself"
    if head[:4] == _GGUF_MAGIC:
        return f"{path} is GGUF: weights for llama.cpp, without a graph; expected ONNX or TFLite"
    if path.suffix == ".safetensors":
        return f"{path} is safetensors: weights without a graph; expected ONNX or TFLite"
    if head[:2] == b"PK":
        return f"{path} is a zip archive (a PyTorch checkpoint?); expected ONNX or TFLite"
    text = all(byte >= 0x20 or byte in b"\t\r\n" for byte in head)
    if text:
        start = head[:40].decode("utf-8", "replace").splitlines()[0] if head.strip() else ""
        return f"{path} is a text file (it starts with '{start}'); expected ONNX or TFLite"
    return f"{path} is neither a whole ONNX file nor a TFLite file: {why}"


def hint_at_other(path: Path) -> str:
    """Return what to do about a file by its name."""
    suffix = path.suffix.lower()
    if suffix in (".gguf", ".safetensors"):
        return (
            "export the checkpoint that it comes from: optimum-cli export onnx --model NAME FOLDER"
        )
    if suffix in (".pt", ".pth", ".ckpt"):
        return "export it first: torch.onnx.export(model, inputs, 'model.onnx')"
    if suffix in (".pb", ".h5", ".keras"):
        return "convert it first: tf.lite.TFLiteConverter"
    return f"{EXPORT_AGAIN}; `git lfs pull` if it comes from a repository"
