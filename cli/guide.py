"""What `dscore --help` teaches before it lists the commands."""

GUIDE = """Declarative convolution operators for depthwise-separable networks.

You state a convolution and a device. dscore finds a tiling that provably fits, says why it fits,
runs it, and holds the result to an error bound. You need not have the device, nor any GPU.

A problem is one token: the input, an underscore, the layer.

\b
  n1c64h14w14_o384k1              1 image, 64 channels of 14x14; 384 output channels, kernel 1x1
  n1c32h112w112_o32k3s2p1g32      depthwise (32 groups): kernel 3x3, stride 2, padding 1
  ..._bias_relu6                  with a bias and an activation

Names stand for problems, too: a layer of the papers (P13, D4), a layer of a network
(mobilenet_v2/7), a range of layers (P1-P45), a whole network (mobilenet_v2).

\b
  dscore devices                             the known devices, and what can run here
  dscore devices z100sm                      every figure of one device
  dscore space P13 --top 5                   the tilings that fit, best first
  dscore explain mobilenet_v2/7              the plan, its limits, its picture, its floor
  dscore validate tiling.toml                judge tilings of your own
  dscore emit P13                            the C++ unit of a layer's kernel
  dscore build mobilenet_v2 --target gfx906  compile all its kernels, without a GPU
  dscore prepare mobilenet_v2                the kernels that calls take, compiled at once
  dscore run mobilenet_v2                    run and check every layer
  dscore bench D4 P13                        time layers beside PyTorch
  dscore tune P13                            find the fastest tiling on your GPU
  dscore conformance --examples 1000         search for a case that a backend gets wrong
  dscore cache show                          the libraries and tuning records on disk
  dscore env                                 versions and backends

Every command takes --json. Exit codes: 0 fine, 1 the command ran and found failures, 2 wrong
usage, 3 something is missing on this machine, 4 a compiler failed, 5 a device failed, 130
interrupted.
"""
