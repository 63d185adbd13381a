"""Standard layers in an Adreno's machine code.

`layers` are small ONNX models; `machine_code` has their kernels analysed by an outside compiler and
estimator, whose loops `loop_trips` counts.
"""
