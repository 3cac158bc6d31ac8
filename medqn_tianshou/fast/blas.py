"""Matrix products inside compiled code, by the BLAS that torch ships or else by loops.

torch's CPU library exports ``sgemm``. Compiled code calls it by its address, so that products run
at the speed of ``torch.mm`` without calls of Python.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

import ctypes
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import torch
from numba import types
from numba.extending import overload
from numpy.typing import NDArray

_SYMBOL = "medqn_tianshou_sgemm"
_NO, _YES = np.array([ord("N")], np.uint8), np.array([ord("T")], np.uint8)
_ONE, _ZERO = np.ones(1, np.float32), np.zeros(1, np.float32)


def _find_sgemm() -> int | None:
    """Return the address of torch's ``sgemm``, or None where its library does not export it."""
    for path in (Path(torch.__file__).parent / "lib").glob("libtorch_cpu.*"):
        try:
            return ctypes.cast(ctypes.CDLL(str(path)).sgemm_, ctypes.c_void_p).value
        except (OSError, AttributeError):
            return None
    return None


_address = _find_sgemm()
if _address is not None:
    llvm.add_symbol(_SYMBOL, _address)
# By name: numba caches the code for later processes, in which the address differs.
_sgemm: Any = types.ExternalFunction(_SYMBOL, types.void(*[types.intp] * 13))


def product_scratch(*, blas: bool = _address is not None) -> NDArray[Any]:
    """Return the scratch memory of :func:`product`.

    :param blas: whether products go through BLAS. The type of the memory says so to the compiler:
        numba's cache cannot mix up the two.
    """
    return np.zeros(6, np.int32 if blas else np.int64)


def product(transpose_a, transpose_b, rows, columns, inner, a, b, c, scratch):  # pragma: no cover
    """In compiled code: c = a b; each matrix is its rows, one after another."""
    raise NotImplementedError


@overload(product, jit_options={"fastmath": {"contract", "reassoc", "nsz"}})
def _product(transpose_a, transpose_b, rows, columns, inner, a, b, c, scratch):
    return _blas_product if scratch.dtype == types.int32 else _loop_product


def _blas_product(  # pragma: no cover
    transpose_a, transpose_b, rows, columns, inner, a, b, c, scratch
):
    # BLAS counts columns first: the product of the transposed matrices in the other order.
    scratch[0], scratch[1], scratch[2] = columns, rows, inner
    scratch[3] = inner if transpose_b else columns
    scratch[4] = rows if transpose_a else inner
    scratch[5] = columns
    at = scratch.ctypes.data
    _sgemm(
        _YES.ctypes.data if transpose_b else _NO.ctypes.data,
        _YES.ctypes.data if transpose_a else _NO.ctypes.data,
        at, at + 4, at + 8, _ONE.ctypes.data, b.ctypes.data, at + 12, a.ctypes.data, at + 16,
        _ZERO.ctypes.data, c.ctypes.data, at + 20,
    )  # fmt: skip


def _loop_product(  # pragma: no cover
    transpose_a, transpose_b, rows, columns, inner, a, b, c, scratch
):
    for row in range(rows):
        result = c[row * columns : (row + 1) * columns]
        result[:] = 0
        for k in range(inner):
            factor = a[k * rows + row] if transpose_a else a[row * inner + k]
            if transpose_b:
                for column in range(columns):
                    result[column] += factor * b[column * inner + k]
            else:
                other = b[k * columns : (k + 1) * columns]
                for column in range(columns):
                    result[column] += factor * other[column]
