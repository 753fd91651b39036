"""Backends that are wrong in one way each."""

from dscore.backends.reference.backend import ReferenceBackend
from dscore.core.errors import CompileError, LaunchError
from dscore.core.plan import Violation


class _Kernel:
    def __init__(self, kernel, act):
        self.kernel, self.act, self.plan, self.use = kernel, act, kernel.plan, kernel.use

    def __call__(self, *operands):
        self.kernel(*operands)
        self.act(operands[-1])

    def seconds(self, *operands, repeats):
        return self.kernel.seconds(*operands, repeats=repeats)


class _Faulty(ReferenceBackend):
    name = "faulty"
    any_device = True

    def compile(self, plan):
        return _Kernel(super().compile(plan), self.act)


class Wrong(_Faulty):
    """Wrong in the last column of outputs that are wider than two."""

    def act(self, out):
        if out.shape[3] > 2:
            out[..., -1] += 1


class Unwritten(_Faulty):
    def act(self, out):
        out[0, 0, 0, 0] = float("nan")


class Scribbler(_Faulty):
    def act(self, out):
        out.base[-1] = 0


class NotLaunched(_Faulty):
    def act(self, out):
        raise LaunchError("the device is lost")


class NotCompiled(_Faulty):
    def compile(self, plan):
        raise CompileError("hipcc: no such architecture")


class Absent(_Faulty):
    def missing(self):
        return "no DCU is installed; install one"


class Choosy(_Faulty):
    def refuses(self, plan):
        return (Violation("E-DTYPE", "dtype", "float32", "int8"),)


class Interrupted(_Faulty):
    ran = 0

    def act(self, out):
        Interrupted.ran += 1
        if Interrupted.ran == 3:
            Interrupted.ran = 0
            raise KeyboardInterrupt
