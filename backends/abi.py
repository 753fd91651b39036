"""What callers of a kernel library need of hip_src/abi.h at every launch."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

ABI = 4
# The code for arrays that must be copied first.
MISPLACED = -2
# The bytes of a dscore_places: x, w, bias, out and the stream.
pack_places: Callable[[int, int, int, int, int], bytes] = Struct("=5Q").pack
