"""ONNX files to Relax IR: `importer.py` is the door."""
