"""Code compiled by numba, cached on disk if possible."""

from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from numba import njit


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function when it is first called, with numba's options.

    numba caches the code next to the source, or in the user's cache folder. If neither is
    writable, as in a read-only container, it compiles in each process.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            kept = njit(cache=True, **options)(function)
        except RuntimeError:  # no folder to keep it in
            return njit(**options)(function)
        # numba does not notice changes in other files whose functions the code calls.
        file = kept._cache._cache_file
        sources = _digest(Path(function.__code__.co_filename).parent)
        file._source_stamp = (file._source_stamp, sources)
        return kept

    return decorate


# Not "fast": NaN must remain NaN.
kernel = compiled(fastmath={"contract", "reassoc", "nsz", "arcp"}, error_model="numpy")
"""For arithmetic in any order."""
exact = compiled(error_model="numpy")
"""For results that must be rounded as numpy rounds them."""


@cache
def _digest(folder: Path) -> str:
    """Return a digest of the sources in a folder: compiled functions call those beside them."""
    texts = (path.read_bytes() for path in sorted(folder.glob("*.py")))
    return sha256(b"\0".join(texts)).hexdigest()
