"""What `dscore --help` teaches before it lists the commands, and after."""

from __future__ import annotations

from collections.abc import Mapping

GUIDE = """Declarative convolution operators for depthwise-separable networks.

You state a convolution and a device. dscore finds a tiling that provably fits, says why it fits,
runs it, and holds the result to an error bound. You need not have the device, nor any GPU.

A problem is one token: the input, an underscore, the layer.

\b
  n1c64h14w14_o384k1          1 image, 64 channels of 14x14; 384 outputs, 1x1
  n1c32h112w112_o32k3s2p1g32  depthwise (32 groups): 3x3, stride 2, padding 1
  ..._bias_relu6              with a bias and an activation

Names stand for problems, too: a layer of the papers (P13, D4), a layer of a network
(mobilenet_v2/7), a range of layers (P1-P45), a whole network (mobilenet_v2).

\b
  dscore devices                   the known devices, and what can run here
  dscore devices z100sm            every figure of one device
  dscore space P13 --top 5         the tilings that fit, best first
  dscore explain mobilenet_v2/7    the plan, its limits, picture and floor
  dscore validate tiling.toml      judge tilings of your own
  dscore emit P13                  the C++ unit of a layer's kernel
  dscore build P13 --target sm_90  compile kernels without a GPU
  dscore prepare mobilenet_v2      compile the kernels that calls take
  dscore run mobilenet_v2          run and check every layer
  dscore scan mobilenet_v2         what it would do to a network of PyTorch
  dscore bench D4 P13              time layers beside PyTorch
  dscore tune P13                  find the fastest tiling on your GPU
  dscore conformance               search for a case that a backend gets wrong
  dscore cache show                the libraries and tuning records on disk
  dscore env                       versions, compilers, GPUs: for an issue

Every command takes --json, -q (results and errors alone) and -v (every limit, column and line).
Tables are as wide as the terminal, or as COLUMNS says; in a pipe or a file they have 100 columns.
"""

_EXIT_CODES = {
    "0": "fine",
    "1": "the command ran and found failures",
    "2": "wrong usage",
    "3": "something is missing on this machine",
    "4": "a compiler failed",
    "5": "a device failed",
    "6": "the output cannot be written: a full disk, a closed stdout",
    "70": "a defect of dscore",
    "130": "interrupted (SIGINT, SIGTERM, SIGHUP); what was measured is kept",
    "141": "the reader of a pipe left, as in `dscore devices | head -1`",
}
# The variables of the environment that dscore reads.
VARIABLES = {
    "DSCORE_CACHE_DIR": "folder of libraries and records [~/.cache/dscore]",
    "XDG_CACHE_HOME": "without that, its subfolder dscore",
    "DSCORE_CXX": "the host's C++ compiler, for the emulated device",
    "DSCORE_HIPCC": "hipcc or DTK's compiler",
    "DSCORE_NVCC": "nvcc",
    "DSCORE_OBJDUMP": "llvm-objdump, for the backend gfx906",
    "DSCORE_LIBRARIES": "files of dscore build --out, separated as in PATH",
    "DSCORE_DEVICE": "describes the GPU here: NAME, FILE.toml, or driver",
    "DSCORE_TUNE": "on: dscore.conv tunes a problem at its first call [off]",
    "DSCORE_LANE_ORDER": "forward, reverse, random: of emulated lanes",
    "COLUMNS": "width of tables [the terminal's]",
    "NO_COLOR": "set: no colours",
}


def _listed(rows: Mapping[str, str]) -> str:
    width = max(map(len, rows))
    return "\n".join(f"  {name:<{width}}  {text}" for name, text in rows.items())


EPILOG = f"""\b
Exit codes:
{_listed(_EXIT_CODES)}

\b
With --json, stdout holds one document: the data, or where there are none
  {{"error": {{"kind": "SpecError", "message": "...", "exit": 2}}}}
Data that an error cut short hold the key error beside their own.

\b
Environment variables:
{_listed(VARIABLES)}
"""
