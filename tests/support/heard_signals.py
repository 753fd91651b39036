"""A process that hears the signals which its parent was told to ignore, for `preexec_fn`."""

import signal

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


def hear() -> None:
    """Have the signals end this process; nohup has SIGHUP ignored, a shell's & has SIGINT."""
    for name in SIGNALS:
        signal.signal(getattr(signal, name), signal.SIG_DFL)
