"""Checks of results: the error bound, the guarded run, conformance."""
