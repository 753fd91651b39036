"""What dscore keeps on disk, and where."""
