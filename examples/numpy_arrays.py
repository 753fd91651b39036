"""A depthwise separable block on NumPy arrays, compared with the definition.

    python examples/numpy_arrays.py
"""

import numpy as np

import dscore

rng = np.random.default_rng(0)
x = rng.standard_normal((2, 32, 28, 28), dtype=np.float32)
depthwise = rng.standard_normal((32, 1, 3, 3), dtype=np.float32)
pointwise = rng.standard_normal((64, 32, 1, 1), dtype=np.float32)
bias = rng.standard_normal(64, dtype=np.float32)

y = dscore.conv(x, depthwise, stride=2, padding=1, groups=32)
z = dscore.conv(y, pointwise, bias, activation="relu6")

# The same by the definition, in float64.
padded = np.pad(x.astype(float), ((0, 0), (0, 0), (1, 1), (1, 1)))
windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2]
expected = np.einsum("nchwij,cij->nchw", windows, depthwise[:, 0])
expected = np.einsum("nchw,oc->nohw", expected, pointwise[:, :, 0, 0])
expected = np.clip(expected + bias[:, None, None], 0, 6)

error = np.abs(z - expected).max()
assert error < 1e-4, error
print(f"{type(z).__name__} {z.shape} {z.dtype}, off by {error:.1e} at the most: right")
