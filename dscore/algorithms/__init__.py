"""How a convolution is computed: one folder for each algorithm, one line in the registry."""
