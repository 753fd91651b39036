"""The hint files that are shipped: each hint holds for its device, and says how it was found."""

from dataclasses import replace

from profiles import DEEP

from dscore.core import catalog
from dscore.tuning import shipped_hints
from dscore.tuning.shipped_hints import MICROSECONDS, NETWORK


def test_every_shipped_hint_still_holds() -> None:
    """Of one in four a plan is made by default, the first among them; of all in the deep profile.
    """
    for device_hints in shipped_hints.all_shipped():
        some = dict([*device_hints.hints.items()][::1 if DEEP else 4])
        device = catalog.devices()[device_hints.device]
        ignored = replace(device_hints, hints=some).ignored(device)
        assert not ignored, f"measure {device.name} again, or take these out"
        assert list(device_hints.hints) == sorted(device_hints.hints)


def test_every_shipped_hint_states_its_time_or_its_network() -> None:
    for device_hints in shipped_hints.all_shipped():
        for token, hint in device_hints.hints.items():
            found, algorithm = list(hint)[:2]
            assert algorithm == "algorithm", token
            assert (hint[NETWORK] in catalog.networks() if found == NETWORK
                    else found == MICROSECONDS and hint[MICROSECONDS] > 0), token
