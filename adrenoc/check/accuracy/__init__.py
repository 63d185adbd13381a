"""The accuracy doctor: where half precision goes wrong, why, and what little must be float."""
