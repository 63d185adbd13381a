"""What to do about ONNX operators that have no place in a program of fixed shapes."""

from __future__ import annotations

_COUNT = "how much it gives depends on data"

REMEDIES = {
    "Bernoulli": "it draws random numbers: make them an input",
    "Compress": f"{_COUNT}; with a constant condition it is a Gather, else multiply by a mask",
    "ImageDecoder": "it decodes files: decode before, and feed pixels",
    "RandomNormal": "it draws random numbers: make them an input",
    "RandomNormalLike": "it draws random numbers: make them an input",
    "RandomUniform": "it draws random numbers: make them an input",
    "RandomUniformLike": "it draws random numbers: make them an input",
    "Scan": "the number of its steps is not known: fix it by --shape",
    "StringConcat": "it works on strings: prepare text before the model",
    "StringNormalizer": "it works on strings: prepare text before the model",
    "StringSplit": "it works on strings: prepare text before the model",
    "RegexFullMatch": "it works on strings: prepare text before the model",
    "Unique": f"{_COUNT}: give its input as an output, and do it on the CPU",
}
"""Operator -> the reason, and the nearest rewrite."""
