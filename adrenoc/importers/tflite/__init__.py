"""TFLite files to Relax IR: `importer.py` is the door, `converter.py` the table of operators."""
