"""Counts of what a run of the reference backend does, taken where it is done."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Trace:
    """Counts over all lanes of all blocks; a lane that is masked off counts nothing.

    A call adds to the trace that is passed to it.
    """

    rows_loaded: int = 0
    """Depthwise only. Input rows brought from global memory: one for each row of a strip (the
    `lanes_w` threads side by side of one plane) of which an element lies in the image; through LDS
    one for each row that a block copies, those between the planes' included."""
    inputs_loaded: int = 0
    """Elements of x that lanes load from global memory; of a vector those within its piece."""
    vectors_loaded: int = 0
    """Vectors of 16 bytes that lanes copy from global memory to LDS, past their registers."""
    filters_loaded: int = 0
    """Elements of w that lanes load from global memory."""
    biases_loaded: int = 0
    """Elements of bias that lanes load from global memory."""
    residuals_loaded: int = 0
    """Elements of the residual that lanes load from global memory."""
    scales_loaded: int = 0
    """Elements of the input's scale that lanes load from global memory."""
    multipliers_loaded: int = 0
    """Elements of the multiplier that lanes load from global memory, of layers of int8."""
    tables_loaded: int = 0
    """Entries of a table that lanes load from global memory, of layers of int8."""
    lds_reads: int = 0
    """Elements that lanes read from LDS."""
    lds_writes: int = 0
    """Elements that lanes write to LDS, the zeros that fill up a vector included."""
    operands: int = 0
    """Elements that lanes bring to registers, from LDS or global memory, to multiply them; what a
    shuffle hands over is none."""
    fmas: int = 0
    """Multiply-adds of lanes, those with a zero from a masked load included."""
    shuffles: int = 0
    """Lanes that take part in a shuffle, summed over the shuffles."""
    elements_stored: int = 0
    """Elements of out that lanes store, one by one or in vectors."""
    vectors_stored: int = 0
    """Vectors of 16 bytes of out that lanes store."""

    def count_loads(self, tensor: str, elements: int, operands: bool) -> None:
        """Count loads from global memory of inputs, filters, …, as operands if so."""
        name = f"{tensor}_loaded"
        setattr(self, name, getattr(self, name) + elements)
        self.operands += elements * operands

    @property
    def arithmetic_intensity(self) -> float:
        """Multiply-adds per operand brought to registers in the inner loop (the paper's §5.1.2)."""
        return self.fmas / self.operands if self.operands else 0.0
