"""Language models in TFLite files: signatures for prompts and for one token, which share caches."""
