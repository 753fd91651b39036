"""Completion of names in a shell: layers, devices, backends (`dscore --install-completion`)."""

from __future__ import annotations

from collections.abc import Iterable


def layers(incomplete: str) -> list[str]:
    """Networks, tables and layers that begin so; a network's layers from its slash on.

    >>> layers("mobilenet_v2/1")[:3], layers("P4")
    (['mobilenet_v2/1', 'mobilenet_v2/10', 'mobilenet_v2/11'], \
['P4', 'P40', 'P41', 'P42', 'P43', 'P44', 'P45'])
    """
    from dscore.core import catalog

    networks = catalog.networks()
    network = networks.get(incomplete.partition("/")[0].lower())
    if network is not None and "/" in incomplete:
        return _beginning(incomplete, (layer.name for layer in network.layers))
    return _beginning(incomplete, (*networks, *catalog.layers()))


def devices(incomplete: str) -> list[str]:
    """Shipped devices that begin so.

    >>> devices("gfx9")[0]
    'gfx906'
    """
    from dscore.core import catalog

    return _beginning(incomplete, catalog.devices())


def backends(incomplete: str) -> list[str]:
    """Registered backends that begin so.

    >>> backends("em")
    ['emulated']
    """
    from dscore.core.backend import backend_names

    return _beginning(incomplete, ("auto", *backend_names()))


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name.lower().startswith(incomplete.lower()))
