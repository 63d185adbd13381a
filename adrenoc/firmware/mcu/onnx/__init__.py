"""From an ONNX file whose data are quantised (QDQ or QOperator) to a network of integers."""
