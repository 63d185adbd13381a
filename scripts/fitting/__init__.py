"""Standard layers in an Adreno's machine code, and the table that constants are fitted to.

`layers` are small ONNX models; `machine_code` has their kernels analysed by an outside compiler and
estimator, whose loops `loop_trips` counts; `more_threads` looks for schedules that keep more
threads in flight; `measure` writes the table that `scripts/fit_cost` gives to
`adrenoc/lab/tune/refit`.
"""
