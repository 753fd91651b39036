"""A backend of torch.compile that keeps the programs it is given."""


def keeping(texts):
    """The backend: the code of each program goes to *texts*, and the program runs as it is.

    It imports PyTorch's compiler itself, as that takes two seconds of each process that collects
    the tests.
    """
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    def compiler(program, inputs):
        texts.append(program.code)
        return make_boxed_func(program.forward)

    return aot_autograd(fw_compiler=compiler)
