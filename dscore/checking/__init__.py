"""Whether a result is right: the error bound, the guarded run, conformance."""
