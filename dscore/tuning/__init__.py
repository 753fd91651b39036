"""Tuning: measurements, their records, the search, and the hints that are shipped."""
