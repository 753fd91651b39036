"""The hint files that are shipped: each hint holds for its device, and states a cold time."""

from dscore.core import catalog
from dscore.tuning import shipped_hints

# Whose tilings are the fastest in MobileNetV2, where no cold time was taken.
CHOSEN_IN_A_NETWORK = {"n32c144h28w28_o32k1_int8_nhwc", "n32c160h7w7_o960k1_int8_nhwc"}


def test_every_shipped_hint_still_holds() -> None:
    for device_hints in shipped_hints.all_shipped():
        device = catalog.devices()[device_hints.device]
        assert not device_hints.ignored(device), f"measure {device.name} again, or take these out"
        assert list(device_hints.hints) == sorted(device_hints.hints)
        for token, hint in device_hints.hints.items():
            untimed = token in CHOSEN_IN_A_NETWORK and device.name == "h200"
            assert list(hint)[:2 - untimed] == ["us", "algorithm"][untimed:], token
