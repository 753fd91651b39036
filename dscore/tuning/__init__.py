"""Tuning: measurements, records of them, the search, and the tilings that are shipped."""
