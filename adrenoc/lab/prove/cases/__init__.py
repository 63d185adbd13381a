"""The cases, a file for families that are alike."""
