"""The version, which the package's metadata and what it writes down have from here."""

__version__ = "0.1.0"
