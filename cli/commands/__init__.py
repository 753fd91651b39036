"""The commands, one module each, named as the command: its arguments, its help and its work.

The work is imported inside functions, so that `--help` and usage errors do not wait for NumPy.
"""
