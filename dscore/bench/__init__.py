"""The comparison with PyTorch: methods, rows, summaries."""
