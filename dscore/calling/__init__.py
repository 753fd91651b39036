"""Calls of `dscore.conv`, each module on the ones before it: how x goes from door to kernel.

1. `dscore.conv` looks its call up (`call_cache`); where it is remembered, it launches at once.
2. `arguments` finds the one adapter of all arrays (`arrays`, `gpu_arrays`) and checks them.
3. `arguments` makes the problem of their shapes and the options, and finds the GPU or the host.
4. `choice` decides the plan: the caller's, the tuned, the shipped, or the model's first; `kernels`
   has its kernel, or the call that is prepared of it for arrays on a GPU.
5. `convolve` runs the kernel on host arrays, or the prepared call, which it remembers, on a GPU's.
   An x of floats for a layer of int8 may have a step of its own before (`quantise`).
"""
