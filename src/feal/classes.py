"""A class by the name that a user gives it: a registered one, or one of his own in a file or module."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from feal.errors import FealError, unknown
from feal.files import whole_path
from feal.registry import Registry

T = TypeVar("T")

_PREFIX = "feal_own_"


def class_named(name: str, *, registry: Registry[type[T]], base: type[Any], derive: str) -> type[T]:
    """The registered class of that name, or one of one's own: `module:Class` or `path/to/file.py:Class`.

    Args:
        name: as the user wrote it.
        registry: where names are looked up, and what the classes are called in messages.
        base: what a class of one's own must derive from.
        derive: the name of `base` to import it by.

    Raises:
        FealError: there is no such name, file, module or class, or it cannot be imported.
    """
    kind = registry.kind
    where, colon, class_ = name.rpartition(":")
    if not colon and name.endswith(".py"):
        raise FealError(f"{name} is a file: name the {kind} in it, too, as {name}:Class.")
    if not colon:
        return registry.get(name)
    module = load_file(Path(where), kind=kind) if where.endswith(".py") else _imported(where, kind)
    found = getattr(module, class_, None)
    if found is None:
        own = [key for key, value in vars(module).items() if _derives(value, base) and _is_of(value, module)]
        raise unknown(f"{kind} in {where} called", class_, own)
    if not _derives(found, base):
        raise FealError(f"{class_} of {where} is no {kind}: derive it from {derive}.")
    missing = ", ".join(sorted(found.__abstractmethods__))
    if missing:
        raise FealError(f"The {kind} {class_} of {where} lacks {missing}: add what is missing.")
    return found  # type: ignore[no-any-return]


def whole_name(name: str) -> str:
    """The name by which a class is found from any folder: that of a file here becomes its whole path."""
    where, colon, class_ = name.rpartition(":")
    if not colon:
        return name
    path = whole_path(where if where.endswith(".py") else f"{where.replace('.', '/')}.py")
    if where.endswith(".py") or (path.is_file() and _origin(where) in (None, str(path))):
        return f"{path}:{class_}"
    return name


def short_name(name: str) -> str:
    """What something is called where space is short: the class's name for one of one's own.

    >>> short_name("/home/me/mine.py:Mine"), short_name("feal")
    ('Mine', 'feal')
    """
    return name.rpartition(":")[2]


def own_file(class_: type) -> Path | None:
    """The file of a class that was loaded by its path, which another process has to load first, too."""
    module = sys.modules.get(class_.__module__)
    if module is None or not module.__name__.startswith(_PREFIX):
        return None
    return Path(str(module.__file__))


def source_digest(class_: type) -> str | None:
    """The SHA-256 of `own_file`, by which an edit is noticed; None where there is no such file any more."""
    path = own_file(class_)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path is not None and path.is_file() else None


def load_file(path: Path, *, kind: str) -> ModuleType:
    """The module in a file, loaded once; a missing or broken file is a `FealError`."""
    path = whole_path(path)
    # By its path, so that two files of the same name are two modules, and one file is one.
    name = f"{_PREFIX}{hashlib.blake2b(str(path).encode(), digest_size=8).hexdigest()}"
    known = [module for module in sys.modules.values() if getattr(module, "__file__", None) == str(path)]
    if known:
        return known[0]
    if not path.is_file():
        raise FealError(f"There is no file {path} for a {kind}: check the path, or put the file back.")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise _broken(str(path), error, kind) from error
    return module


def _derives(value: object, base: type[Any]) -> bool:
    return inspect.isclass(value) and issubclass(value, base)


def _is_of(value: object, module: ModuleType) -> bool:
    return getattr(value, "__module__", None) == module.__name__


def _origin(module: str) -> str | None:
    """The file of a module that can be imported."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    return spec.origin if spec is not None else None


def _imported(name: str, kind: str) -> ModuleType:
    if _origin(name) is None:
        raise FealError(
            f"There is no module {name} for a {kind} here or among the installed packages: check its name."
        )
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise _broken(name, error, kind) from error


def _broken(where: str, error: Exception, kind: str) -> FealError:
    line = traceback.extract_tb(error.__traceback__)[-1]
    what = f"{type(error).__name__}: {error}; {Path(line.filename).name}, line {line.lineno}"
    return FealError(f"The {kind} in {where} cannot be imported ({what}): mend it.")
