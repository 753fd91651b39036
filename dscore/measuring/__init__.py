"""Time on a device: runners, clocks, floors, and the lock of a GPU."""
