"""Compiled code where nothing can be written to disk."""

import numpy as np
from numba.core import caching

from medqn_tianshou.files.compiling import compiled


def double(values):
    return values * 2


def test_code_is_kept_for_the_next_process_where_that_is_possible(tmp_path, monkeypatch):
    monkeypatch.setattr(caching.config, "CACHE_DIR", str(tmp_path))
    assert compiled()(double)(np.ones(2)).tolist() == [2, 2]
    assert list(tmp_path.rglob("*.nbi"))


def test_code_is_compiled_where_no_cache_can_be_written(monkeypatch):
    for implementation in (caching.CompileResultCacheImpl, caching.CodeLibraryCacheImpl):
        monkeypatch.setattr(implementation, "_locator_classes", [])
    assert compiled()(double)(np.ones(2)).tolist() == [2, 2]
