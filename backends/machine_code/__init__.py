"""Interpreter of gfx906 machine code: the kernels that hipcc builds, executed on NumPy arrays.

"Vega ISA" in these modules is AMD's public manual '"Vega" 7nm Instruction Set Architecture'.
"""
