"""Solver: the tilings that fit a device, their order, and the reasons."""
