"""A strategy by the name that a configuration gives it."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
import traceback
from pathlib import Path
from types import ModuleType

from feal.errors import FealError, unknown
from feal.selection.contract import STRATEGIES, Strategy


def strategy_named(name: str) -> type[Strategy]:
    """The registered strategy of that name, or one of one's own: `module:Class` or `path/to/file.py:Class`.

    Raises:
        FealError: there is no such strategy, file, module or class, or it cannot be imported.

    >>> strategy_named("random").__name__
    'Random'
    """
    where, colon, class_ = name.rpartition(":")
    if not colon and name.endswith(".py"):
        raise FealError(f"{name} is a file: name the strategy in it, too, as {name}:Class.")
    if not colon:
        return STRATEGIES.get(name)
    module = _from_file(Path(where)) if where.endswith(".py") else _imported(where)
    strategy = getattr(module, class_, None)
    if strategy is None:
        own = [key for key, value in vars(module).items() if _is_strategy(value) and _is_of(value, module)]
        raise unknown(f"strategy in {where} called", class_, own)
    if not _is_strategy(strategy):
        raise FealError(f"{class_} of {where} is no strategy: derive it from feal.selection.Strategy.")
    missing = ", ".join(sorted(strategy.__abstractmethods__))
    if missing:
        raise FealError(f"The strategy {class_} of {where} lacks {missing}: add what is missing.")
    return strategy  # type: ignore[no-any-return]


def whole_name(name: str) -> str:
    """The name by which a strategy is found from any folder: that of a file here becomes its whole path."""
    where, colon, class_ = name.rpartition(":")
    if not colon:
        return name
    path = Path(where if where.endswith(".py") else f"{where.replace('.', '/')}.py").expanduser().resolve()
    if where.endswith(".py") or (path.is_file() and _origin(where) in (None, str(path))):
        return f"{path}:{class_}"
    return name


def short_name(name: str) -> str:
    """What a strategy is called where space is short: the class's name for one of one's own.

    >>> short_name("/home/me/mine.py:Mine"), short_name("feal")
    ('Mine', 'feal')
    """
    return name.rpartition(":")[2]


def _is_strategy(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, Strategy)


def _is_of(value: object, module: ModuleType) -> bool:
    return getattr(value, "__module__", None) == module.__name__


def _origin(module: str) -> str | None:
    """The file of a module that can be imported."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    return spec.origin if spec is not None else None


def _imported(name: str) -> ModuleType:
    if _origin(name) is None:
        raise FealError(
            f"There is no module {name} for a strategy here or among the installed packages: check its name."
        )
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise _broken(name, error) from error


def _from_file(path: Path) -> ModuleType:
    path = path.expanduser().resolve()
    # By its path, so that two files of the same name are two modules, and one file is one.
    name = f"feal_strategy_{hashlib.blake2b(str(path).encode(), digest_size=8).hexdigest()}"
    known = [module for module in sys.modules.values() if getattr(module, "__file__", None) == str(path)]
    if known:
        return known[0]
    if not path.is_file():
        raise FealError(f"There is no file {path} for a strategy: check the path, or put the file back.")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise _broken(str(path), error) from error
    return module


def _broken(where: str, error: Exception) -> FealError:
    line = traceback.extract_tb(error.__traceback__)[-1]
    what = f"{type(error).__name__}: {error}; {Path(line.filename).name}, line {line.lineno}"
    return FealError(f"The strategy in {where} cannot be imported ({what}): mend it.")
