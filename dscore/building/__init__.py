"""From plans to libraries of kernels: generated units, compilers, what these report."""
