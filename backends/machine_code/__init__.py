"""Interpreter of gfx906 and gfx90a machine code: hipcc's kernels, executed on NumPy arrays.

"Vega ISA" in these modules is AMD's public manual '"Vega" 7nm Instruction Set Architecture'.
"""
