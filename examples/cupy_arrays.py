"""A depthwise separable block on CuPy arrays; they stay on the GPU.

    python examples/cupy_arrays.py
"""

import cupy as cp

import dscore

rng = cp.random.default_rng(0)
x = rng.standard_normal((2, 32, 28, 28), dtype=cp.float32)
depthwise = rng.standard_normal((32, 1, 3, 3), dtype=cp.float32)
pointwise = rng.standard_normal((64, 32, 1, 1), dtype=cp.float32)
bias = rng.standard_normal(64, dtype=cp.float32)

with cp.cuda.Stream(non_blocking=True) as stream:  # dscore launches on the current stream
    stream.wait_event(cp.cuda.Stream.null.record())  # the data is made on another one
    y = dscore.conv(x, depthwise, stride=2, padding=1, groups=32)
    z = dscore.conv(y, pointwise, bias, activation="relu6")
    stream.synchronize()

# The same by the definition, in float64.
padded = cp.pad(x.astype(float), ((0, 0), (0, 0), (1, 1), (1, 1)))
expected = sum(depthwise[:, 0, i, j][:, None, None] * padded[:, :, i:i + 27:2, j:j + 27:2]
               for i in range(3) for j in range(3))
expected = cp.einsum("nchw,oc->nohw", expected, pointwise[:, :, 0, 0].astype(float))
expected = cp.clip(expected + bias[:, None, None], 0, 6)

error = float(cp.abs(z - expected).max())
assert error < 1e-4, error
print(f"{type(z).__name__} {z.shape} on {z.device}, off by {error:.1e} at the most: right")
