"""What a refused call says, and a backend that cannot run."""

import re

import pytest

from dscore.core.errors import SpecError


def message(call, *args, kind=SpecError):
    """The text of the error that the call raises; a call that raises none fails the test."""
    with pytest.raises(kind) as caught:
        call(*args)
    return str(caught.value)


def needs(backend):
    """Mark that skips tests where *backend* cannot run; the reason says what is missing, in short.

    What was tried, and how to help it, is for users: `dscore env` has it.
    """
    reason = re.sub(r" \([^)]*\)", "", str(backend.missing()))
    short = "; ".join(part.split(": ")[0] for part in reason.split("; "))
    return pytest.mark.skipif(backend.missing() is not None, reason=short)
