"""Calls from Python: arrays of every library, the choice of a plan, remembered calls."""
