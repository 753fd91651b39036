"""What a refused call says."""

import pytest

from dscore.core.errors import SpecError


def message(call, *args):
    """The text of the SpecError that the call raises; a call that raises none fails the test."""
    with pytest.raises(SpecError) as caught:
        call(*args)
    return str(caught.value)
