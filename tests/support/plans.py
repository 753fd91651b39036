"""Plans made by hand, without the solver, for backends that must judge them by themselves; and
the devices that plans of the solver are for.
"""

from profiles import mostly_deep

from dscore.algorithms.registry import case_of
from dscore.core import catalog
from dscore.core.device import Device
from dscore.core.plan import Cost, Plan

# Names: by default one of each kind of wavefront, copies and matrix units.
DEVICES = mostly_deep(sorted(catalog.devices()), "a100", "gfx90a", "h200", "rtx2080ti", "z100sm")


def plan_of(problem, tiling, wavefront=64):
    """The plan of a tiling on a device of that wavefront, valid or not."""
    device = Device("lanes", "lanes", "host", "numpy", wavefront, 60, 4, 10, 16, 1024, 65536, 256,
                    4, 65536, 65536, 256, 1 << 22, 1 << 34, 64, 1.5e9, 1e12)
    case = case_of(problem, device, tiling)
    return Plan(problem, device, tiling, "hardware", case.launch, case.use, 1, 1, True,
                Cost(1.0, "memory", 1, 1.0, 1.0, 1.0))
