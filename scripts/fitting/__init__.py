"""Standard layers in an Adreno's machine code, and the table that constants are fitted to.

`layers` are small ONNX models; `machine_code` has their kernels analysed by an outside compiler and
estimator, whose loops `loop_trips` counts; `measure` writes the table that `scripts/fit_cost` gives
to `adrenoc/lab/tune/refit`.
"""
