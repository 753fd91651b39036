"""Bindings of a made-up driver, whose GPU is what a test says and whose time is simulated."""

from types import SimpleNamespace

from dscore.measuring.vendor_runtime import _CUDA_ATTRIBUTES, Runtime

FILL_SECONDS = 2e-6
# As the drivers of three parts would report them. Of two no file is shipped: an RTX 4080 and one
# GCD of an MI250.
RTX_4080 = {
    "name": b"NVIDIA GeForce RTX 4080\0", "architecture": "sm_89", "memory_bytes": 16_850_000_000,
    "compute_units": 76, "wavefront": 32, "threads_per_block": 1024, "threads_per_cu": 1536,
    "blocks_per_cu": 24, "registers_per_cu": 65_536, "lds_bytes_per_cu": 102_400,
    "lds_bytes_per_block": 101_376, "l2_bytes": 67_108_864, "clock_hz": 2_505_000,
    "memory_clock_hz": 11_201_000, "memory_bus_bits": 256}
MI250 = {
    "name": b"AMD Instinct MI250\0", "architecture": "gfx90a:sramecc+:xnack-",
    "memory_bytes": 68_702_699_520, "compute_units": 104, "wavefront": 64,
    "threads_per_block": 1024, "lds_bytes_per_block": 65_536, "l2_bytes": 8_388_608,
    "clock_hz": 1_700_000, "memory_clock_hz": 1_600_000, "memory_bus_bits": 4096}
Z100SM = MI250 | {
    "name": b"Z100SM\0", "architecture": "gfx906:sramecc+:xnack-",
    "memory_bytes": 17_163_091_968, "compute_units": 64, "l2_bytes": 4_194_304,
    "clock_hz": 1_725_000, "memory_clock_hz": 1_000_000}


class MadeUpDriver:
    """The calls of cuda-python, or of hip-python, that describe and measure a device.

    *bandwidth* is what a copy reaches, both directions counted.
    """

    def __init__(self, properties, bandwidth=6.0e11, prefix="cuda", version=13_000):
        self.properties, self.bandwidth, self.prefix = properties, bandwidth, prefix
        self.version, self.now, self.captured = version, 0.0, None
        self.allocated, self.calls, self.failing = {}, [], None
        kinds = dict.fromkeys(("HostToDevice", "DeviceToHost", "DeviceToDevice"), 1)
        setattr(self, f"{prefix}MemcpyKind", SimpleNamespace(
            **{f"{prefix}Memcpy{kind}": value for kind, value in kinds.items()}))
        setattr(self, f"{prefix}StreamCaptureMode", SimpleNamespace(
            **{f"{prefix}StreamCaptureModeThreadLocal": 1}))
        self.cudaDeviceAttr = SimpleNamespace(
            **{f"cudaDevAttr{stated}": name for name, stated in _CUDA_ATTRIBUTES.items()})

    def __getattr__(self, name):
        if not name.startswith(self.prefix):
            raise AttributeError(name)
        call = getattr(type(self), "_" + name.removeprefix(self.prefix))

        def called(*arguments):
            self.calls.append(name.removeprefix(self.prefix))
            if self.failing == self.calls[-1]:
                return (719,)
            results = call(self, *arguments)
            return (0,) if results is None else (0, results)
        return called

    def hipDeviceProp_t(self):  # noqa: N802
        return SimpleNamespace()

    def _GetDeviceCount(self):  # noqa: N802
        return 1

    def _GetDeviceProperties(self, *arguments):  # noqa: N802
        known, architecture = self.properties, self.properties["architecture"]
        stated = {"name": known["name"], "totalGlobalMem": known["memory_bytes"],
                  "pciDomainID": 0, "pciBusID": 1, "pciDeviceID": 0}
        if self.prefix == "cuda":
            number = architecture.removeprefix("sm_")
            return SimpleNamespace(**stated, major=int(number[:-1]), minor=int(number[-1]))
        vars(arguments[0]).update(
            stated, gcnArchName=architecture, multiProcessorCount=known["compute_units"],
            warpSize=known["wavefront"], maxThreadsPerBlock=known["threads_per_block"],
            sharedMemPerBlock=known["lds_bytes_per_block"], l2CacheSize=known["l2_bytes"],
            clockRate=known["clock_hz"], memoryClockRate=known["memory_clock_hz"],
            memoryBusWidth=known["memory_bus_bits"], regsPerMultiprocessor=65_536)
        return None

    def _DeviceGetAttribute(self, name, index):  # noqa: N802
        return self.properties[name]

    def _DriverGetVersion(self):  # noqa: N802
        return self.version

    def _GetDevice(self):  # noqa: N802
        return 0

    def _SetDevice(self, index):  # noqa: N802
        return None

    def _DeviceSynchronize(self):  # noqa: N802
        return None

    def _StreamCreate(self):  # noqa: N802
        return 7

    def _EventCreate(self):  # noqa: N802
        return []

    def _EventRecord(self, event, stream):  # noqa: N802
        event[:] = [self.now]

    def _EventSynchronize(self, event):  # noqa: N802
        return None

    def _EventElapsedTime(self, start, end):  # noqa: N802
        return 1e3 * (end[0] - start[0])

    def _Malloc(self, size):  # noqa: N802
        address = 1 + len(self.allocated)
        self.allocated[address] = size
        return address

    def _Free(self, address):  # noqa: N802
        del self.allocated[address]

    def _MemsetAsync(self, target, value, size, stream):  # noqa: N802
        self._do(FILL_SECONDS)

    def _MemcpyAsync(self, target, source, size, kind, stream):  # noqa: N802
        self._do(2 * size / self.bandwidth)

    def _do(self, seconds):
        if self.captured is None:
            self.now += seconds
        else:
            self.captured.append(seconds)

    def _StreamBeginCapture(self, stream, mode):  # noqa: N802
        self.captured = []

    def _StreamEndCapture(self, stream):  # noqa: N802
        graph, self.captured = self.captured, None
        return graph

    def _GraphInstantiate(self, graph, flags):  # noqa: N802
        return graph

    _GraphInstantiateWithFlags = _GraphInstantiate

    def _GraphLaunch(self, graph, stream):  # noqa: N802
        self.now += sum(graph)

    def _GraphExecDestroy(self, graph):  # noqa: N802
        return None

    _GraphDestroy = _GraphExecDestroy


def made_up(properties=RTX_4080, **options):
    """A runtime whose driver reports *properties*, and the bindings that it calls."""
    amd = properties["architecture"].startswith("gfx")
    driver = MadeUpDriver(properties, prefix="hip" if amd else "cuda", **options)
    return Runtime("amd" if amd else "nvidia", driver, driver.prefix), driver
