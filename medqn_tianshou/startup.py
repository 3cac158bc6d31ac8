"""Prepares the process of a command or script, before torch and Tianshou are imported.

Half of the memory of a training process was packages that other packages import but a run never
uses. While a package of :data:`UNUSED_BY` loads, it imports stand-ins for them. A stand-in loads
the real module on first use, and is in ``sys.modules`` only during that import: later imports get
the real module. Imports that are not listed here are unchanged.
"""

import ctypes
import os
import re
import sys
from abc import ABCMeta
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module, metadata
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

ENVIRONMENT = {
    # OpenMP's threads spin for milliseconds while they wait for each other. If other processes need
    # the cores, training on two threads then slows down severalfold; with short spins
    # it keeps its share (python -m benchmarks.speed --parts contention).
    "GOMP_SPINCOUNT": "3000",
}

UNUSED_BY: dict[str, dict[str, tuple[str, ...]]] = {
    "tianshou": {
        "deepdiff": ("DeepDiff",),  # compares batches
        "h5py": ("Dataset", "Group"),  # saves buffers; our checkpoints do not use it
        "matplotlib.figure": ("Figure",),  # asks whether a logged value is one
        "pandas": (),  # finds missing values in batches
        "ray": (),  # environments on a cluster
        "wandb": (),  # Tianshou's own logger; ours loads it with the flag --wandb
    },
    "gymnasium": {"cv2": ()},  # for its own Atari wrapper
    "minatar": {  # draws its own window
        "matplotlib": (),
        "matplotlib.colors": (),
        "matplotlib.pyplot": (),
        "seaborn": (),
    },
}
"""By the package that imports them: modules that a run does not use, and the classes of them that
the package names while it loads."""


def prepare_process() -> None:
    """Reduce the memory of this process; call it before torch and Tianshou are imported.

    It also limits how long OpenMP's threads spin. Loaded packages, and environment variables that
    the user has set, are unchanged. Gymnasium registers its own environments and ours, but no
    other plugins: to load them, call ``gymnasium.envs.registration.load_plugin_envs()``.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if not any(isinstance(finder, _LeanFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _LeanFinder())


def release_code() -> None:
    """Release the pages of library code that were needed only while the libraries loaded.

    RSS counts these pages until the system reclaims them. They stay in its file cache, and are
    mapped again when their code runs.
    """
    try:
        libc, maps = ctypes.CDLL(None), Path("/proc/self/smaps").read_text()
    except (OSError, TypeError):  # not Linux
        return
    for start, end, anonymous in _CODE.findall(maps):
        if anonymous == "0":  # the code in memory is unmodified
            size = int(end, 16) - int(start, 16)
            libc.madvise(ctypes.c_void_p(int(start, 16)), ctypes.c_size_t(size), _DONTNEED)


_DONTNEED = 4  # MADV_DONTNEED of Linux
_CODE = re.compile(
    r"^([0-9a-f]+)-([0-9a-f]+) r-xp .*\.so[.\d]*\n(?:(?!Anonymous:)[A-Z].*\n)*Anonymous: +(\d+) kB",
    re.MULTILINE,
)


class _LeanFinder(MetaPathFinder):
    """Finds the packages that need a lean loader; all others are left to Python's finders."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in (*UNUSED_BY, "torch"):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _LeanLoader(spec.loader)
        return spec


class _LeanLoader(Loader):
    """Loads a package as its own loader does, with stand-ins for what it does not use."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        spec: Any = module.__spec__
        spec.loader = module.__loader__ = self._loader  # which reads sources and data files
        with _standing_in(UNUSED_BY.get(spec.name, {})), _own_plugins_only():
            self._loader.exec_module(module)
        if spec.name == "torch":
            _Dynamo.stand_in()
        release_code()


class _StandIn(ModuleType):
    """Stands in for a module that is imported but not used; the first use loads the real one."""

    def __getattr__(self, name: str) -> Any:
        # Python reads __path__ to import a submodule. Others look through all modules for such
        # names as __file__, which is no use.
        if name.startswith("__") and name != "__path__":
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(self.load(), name)

    def load(self) -> ModuleType:
        """Load the real module under this name."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return import_module(self.__name__)


class _StandInClass(ABCMeta):
    """Stands in for a class of a module that is not loaded, and therefore has no instances."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return cls.__module__ in sys.modules and isinstance(instance, cls.real)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls.real(*args, **kwargs)

    @property
    def real(cls) -> Any:
        """The class itself, for which its module is loaded."""
        return getattr(import_module(cls.__module__), cls.__name__)


@contextmanager
def _standing_in(modules: Mapping[str, Sequence[str]]) -> Iterator[None]:
    """Put stand-ins into ``sys.modules`` for modules that are installed and not loaded."""
    added: dict[str, _StandIn] = {}
    for name, classes in modules.items():
        package, _, child = name.rpartition(".")
        if name in sys.modules or not PathFinder.find_spec(name.partition(".")[0]):
            continue
        added[name] = stand_in = _StandIn(name)
        for each in classes:
            setattr(stand_in, each, _StandInClass(each, (), {"__module__": name}))
        if package in added:
            setattr(added[package], child, stand_in)
        stand_in.__path__ = []  # read by each `from name import ...`
    sys.modules.update(added)
    try:
        yield
    finally:
        for name, stand_in in added.items():
            del stand_in.__path__
            if sys.modules.get(name) is stand_in:
                del sys.modules[name]


@contextmanager
def _own_plugins_only() -> Iterator[None]:
    """Hide all Gymnasium plugins except ours: MinAtar's loads seaborn and scipy."""
    entry_points: Callable[..., Any] = metadata.entry_points

    def without_others(**selection: Any) -> Any:
        found = entry_points(**selection)
        if selection.get("group") != "gymnasium.envs":
            return found
        return tuple(point for point in found if point.value.startswith("medqn_tianshou."))

    metadata.entry_points = without_others
    try:
        yield
    finally:
        metadata.entry_points = entry_points


class _Dynamo(_StandIn):
    """Stands in for ``torch._dynamo``, which torch's optimizers import for these two functions.

    Unlike the others it stays, until something else of torch's compiler is used.
    """

    def __init__(self) -> None:
        super().__init__("torch._dynamo")
        self._passed: list[Any] = []

    @classmethod
    def stand_in(cls) -> None:
        """Stand in, unless the compiler is loaded."""
        sys.modules.setdefault("torch._dynamo", cls())

    def disable(self, function: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Keep the compiler away from a function of torch, for which it need not be loaded."""
        if sys._getframe(1).f_globals.get("__name__") != "torch._compile":
            return self.load().disable(function, *args, **kwargs)
        self._passed.append(function)
        return function

    def graph_break(self) -> None:
        """Do nothing: the compiler is not loaded."""

    def load(self) -> ModuleType:
        """Load the compiler, and let torch ask it for its own ``disable``."""
        for function in self._passed:
            vars(function).pop("__dynamo_disable", None)
        self._passed.clear()
        return super().load()
