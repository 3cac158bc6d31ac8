"""Code compiled by numba, kept on disk for the next process where that is possible."""

from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function when it is first called, with numba's options.

    numba keeps the code beside the source, or in the user's cache folder. Where neither can be
    written, as in a read-only container, it compiles anew in each process.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return njit(cache=True, **options)(function)
        except RuntimeError:  # no folder to keep it in
            return njit(**options)(function)

    return decorate
