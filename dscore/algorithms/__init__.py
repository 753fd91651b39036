"""Algorithms to compute a convolution: a folder for each, and its line in the registry."""
