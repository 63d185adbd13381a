"""CLML: parts of a model that Qualcomm's OpenCL ML library computes.

`patterns` is the table of what can be offloaded, `match` finds it in Relax, `partition` merges
what was found into regions, `cost` tells which of them win, `document` writes a region as the
JSON graph that a CLML runtime reads, `codegen` makes runtime modules of kind "clml" from it.
"""
