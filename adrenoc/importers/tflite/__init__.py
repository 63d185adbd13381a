"""TFLite files to Relax IR: `importer.py` is the door, `ops.py` the table of operators."""
