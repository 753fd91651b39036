"""The kernel sources: C++ headers that generated units instantiate (data, read by backends)."""
