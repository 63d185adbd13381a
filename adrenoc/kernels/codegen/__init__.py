"""From lowered TIR to host code and OpenCL C."""
