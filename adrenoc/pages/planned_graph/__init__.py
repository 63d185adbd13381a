"""The planned graph of a model in Model Explorer: `model-explorer --extensions=THIS_PACKAGE`.

The tool loads the module `main` of a package that it is given.
"""
