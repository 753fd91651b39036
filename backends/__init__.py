"""The ways of running a plan, one module each."""
