"""adrenoc: compile ONNX and TFLite models for the Adreno GPU of Android phones."""

__version__ = "0.1.0"
