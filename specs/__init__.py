"""Devices, layers and networks as TOML, each with its sources (data, read by dscore.catalog)."""
