"""Which tilings fit a device, in which order they are tried, and why."""
