"""What a refused call says."""

import pytest

from dscore.core.errors import SpecError


def message(call, *args, kind=SpecError):
    """The text of the error that the call raises; a call that raises none fails the test."""
    with pytest.raises(kind) as caught:
        call(*args)
    return str(caught.value)
