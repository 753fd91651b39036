"""A depthwise separable block on JAX arrays, which dscore takes and gives by DLPack.

The arrays are on the host. Of a GPU's arrays, dscore takes those of PyTorch and CuPy;
`torch.from_dlpack(x)` makes a tensor of the same memory as a JAX array.

    python examples/jax_arrays.py
"""

import jax
import jax.numpy as jnp

import dscore

jax.config.update("jax_platforms", "cpu")
keys = jax.random.split(jax.random.key(0), 4)
x = jax.random.normal(keys[0], (2, 32, 28, 28))
depthwise = jax.random.normal(keys[1], (32, 1, 3, 3))
pointwise = jax.random.normal(keys[2], (64, 32, 1, 1))
bias = jax.random.normal(keys[3], (64,))

y = dscore.conv(x, depthwise, stride=2, padding=1, groups=32)
z = dscore.conv(y, pointwise, bias, activation="relu6")

# The same by JAX.
expected = jax.lax.conv_general_dilated(x, depthwise, (2, 2), [(1, 1), (1, 1)],
                                        feature_group_count=32, precision="highest")
expected = jnp.einsum("nchw,oc->nohw", expected, pointwise[:, :, 0, 0], precision="highest")
expected = jnp.clip(expected + bias[:, None, None], 0, 6)

assert isinstance(z, jax.Array)
error = float(jnp.abs(z - expected).max())
assert error < 1e-3, error
print(f"{type(z).__name__} {z.shape} {z.dtype}, off by {error:.1e} at the most: right")
