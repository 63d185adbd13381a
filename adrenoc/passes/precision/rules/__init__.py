"""Which tensors need float32 where the options store halves: a file a rule, a row in the table.

A rule gives (tensor, reason), and no reason for what goes with a tensor that it gave one for.
"""
