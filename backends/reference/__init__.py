"""The reference backend: the GPU algorithms step by step in NumPy, the measure of other kernels."""
