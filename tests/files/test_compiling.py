"""Compiled code where nothing can be written to disk."""

import os
import subprocess
import sys

import numpy as np
import pytest
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


CALLED = """
from medqn_tianshou.files.compiling import compiled

@compiled()
def f(x):
    return {}
"""
CALLER = """
from called import compiled, f

@compiled()
def g(x):
    return f(x)

print(g(3.0))
"""


@pytest.mark.process
def test_code_is_compiled_anew_when_a_function_that_it_calls_changes(tmp_path):
    (tmp_path / "caller.py").write_text(CALLER)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    printed = []
    for expression in ("x + 1", "x + 1", "x * 7"):
        (tmp_path / "called.py").write_text(CALLED.format(expression))
        call = [sys.executable, "caller.py"]
        process = subprocess.run(
            call, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
        )
        printed.append(float(process.stdout))
    assert printed == [4.0, 4.0, 21.0]
