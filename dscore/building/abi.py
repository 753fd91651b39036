"""What callers of a kernel library know of hip_src/abi.h without it."""

ABI = 5
# The code for arrays that must be copied first.
MISPLACED = -2
