"""GPUs as data: limits, rates, and the floors that follow from them."""
