"""Networks of integers without a GPU: C for microcontrollers and for the CPU of a phone."""
