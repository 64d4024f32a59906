"""Find classes by name: a registered one, or a user's own in a file or module; and read their parameters."""

import hashlib
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Container, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from feal.errors import FealError, nearest_spelling, unknown_name_error
from feal.fileio import absolute_path
from feal.registry import Parameters, Registry

_T = TypeVar("_T")

_PREFIX = "feal_plugin_"


def find_class(
    name: str, *, registry: Registry[type[_T]], base: type[Any] | tuple[type[Any], ...], derive: str
) -> type[_T]:
    """Return the registered class of that name, or a user's own: `module:Class` or `path/to/file.py:Class`.

    Args:
        name: as the user wrote it.
        registry: where names are looked up, and what the classes are called in messages.
        base: what a user's class must derive from.
        derive: the name of `base` to import it by.

    Raises:
        FealError: there is no such name, file, module or class, it cannot be imported or breaks its contract.
    """
    kind = registry.kind
    where, colon, class_ = name.rpartition(":")
    if not colon and name.endswith(".py"):
        raise FealError(f"{name} is a file: name the {kind} in it, too, as {name}:Class.")
    if not colon:
        return registry.get(name)
    module = load_file(Path(where), kind=kind) if where.endswith(".py") else _import_module(where, kind)
    found = getattr(module, class_, None)
    if found is None:
        defined = (value for value in vars(module).values() if _derives(value, base))
        own = [value.__name__ for value in defined if value.__module__ == module.__name__]
        raise unknown_name_error(f"{kind} in {where} called", class_, own)
    if not _derives(found, base):
        raise FealError(f"{class_} of {where} is no {kind}: derive it from {derive}.")
    missing = ", ".join(sorted(found.__abstractmethods__))
    if missing:
        raise FealError(f"The {kind} {class_} of {where} lacks {missing}: add what is missing.")
    if not _derives(getattr(found, "Params", Parameters), Parameters):
        raise FealError(
            f"The Params of the {kind} {class_} of {where} are no parameters: derive them from {derive}.Params."
        )
    return found  # type: ignore[no-any-return]


def read_params(
    owner: type[Any], values: Mapping[str, Any], *, section: str, name: str, prefix: str | None = None
) -> Any:
    """Return the `Params` of a class with these values, by the names that users write after `prefix`.

    The prefix is `section.` by default.

    Raises:
        FealError: the class has no such parameter, or a value is of another type or out of range.

    >>> from feal.registry import Configurable
    >>> read_params(Configurable, {"tau": 1}, section="strategy", name="plain")
    Traceback (most recent call last):
    feal.errors.FealError: Strategy plain has no parameter 'tau': it has none.
    """
    params: type[Parameters] = owner.Params
    fields = parameter_fields(owner)
    for key in values:
        if key not in fields:
            near = nearest_spelling(key, fields)
            known = f"did you mean '{near}'?" if near else f"it has {', '.join(sorted(fields)) or 'none'}."
            raise FealError(f"{section.capitalize()} {short_name(name)} has no parameter '{key}': {known}")
    try:
        return params.model_validate(dict(values))
    except ValidationError as error:
        raise invalid_value_error(error, values, fields, prefix=prefix or f"{section}.") from None


def parameter_fields(owner: type[Any]) -> dict[str, str]:
    """Return the descriptions of a class's parameters, by the names that users write."""
    params: type[Parameters] = owner.Params
    return {field.alias or key: field.description or key for key, field in params.model_fields.items()}


def invalid_value_error(
    error: ValidationError,
    values: Mapping[str, Any],
    descriptions: Mapping[str, str],
    *,
    prefix: str = "",
    source: str = "",
) -> FealError:
    """Return the error for the first key that pydantic refused; a key of several types lists what each takes.

    The message has the key after `prefix`, the value that the user gave before `source`, and the description.
    """
    details = [(_find_key(entry["loc"], descriptions), entry) for entry in error.errors()]
    key, first = details[0]
    about = descriptions.get(key, key)
    if first["type"] == "missing":
        return FealError(f"'{prefix}{key}' is missing{source}: add it ({about}).")
    takes = " or ".join(dict.fromkeys(describe_wanted(entry) for other, entry in details if other == key))
    value = values.get(key, first["input"])
    return FealError(f"{prefix}{key}={value}{source} is not valid: it {takes} ({about}).")


def _find_key(location: tuple[int | str, ...], known: Container[str]) -> str:
    """Return the longest known key on the way to where a value was refused."""
    keys = [".".join(map(str, location[:length])) for length in range(len(location), 0, -1)]
    return next((key for key in keys if key in known), ".".join(map(str, location)))


def describe_wanted(entry: ErrorDetails) -> str:
    """Return what pydantic would have taken, to go on after 'it'."""
    if entry["type"] == "too_short":
        return "should name at least one"
    return entry["msg"].removeprefix("Input ").removeprefix("Value error, ")


def qualify_name(name: str) -> str:
    """Return the name by which a class is found from any directory: with the absolute path of a file here."""
    where, colon, class_ = name.rpartition(":")
    if not colon:
        return name
    path = absolute_path(where if where.endswith(".py") else f"{where.replace('.', '/')}.py")
    if where.endswith(".py") or (path.is_file() and _origin(where) in (None, str(path))):
        return f"{path}:{class_}"
    return name


def short_name(name: str) -> str:
    """Return the name to show where space is short: the class's name for a user's own.

    >>> short_name("/home/me/mine.py:Mine"), short_name("feal")
    ('Mine', 'feal')
    """
    return name.rpartition(":")[2]


def own_file(class_: type) -> Path | None:
    """Return the file of a class that was loaded by its path, which another process has to load first, too."""
    module = sys.modules.get(class_.__module__)
    if module is None or not module.__name__.startswith(_PREFIX):
        return None
    return Path(str(module.__file__))


def source_digest(class_: type) -> str | None:
    """Return the SHA-256 of `own_file`, by which an edit is noticed; None where there is no such file any more."""
    path = own_file(class_)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path is not None and path.is_file() else None


def load_file(path: Path, *, kind: str) -> ModuleType:
    """Load the module in a file, once; a missing or broken file is a `FealError`."""
    path = absolute_path(path)
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
        raise _import_error(str(path), error, kind) from error
    return module


def _derives(value: Any, base: type[Any] | tuple[type[Any], ...]) -> bool:
    return inspect.isclass(value) and issubclass(value, base)


def _origin(module: str) -> str | None:
    """Return the file of a module that can be imported."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    return spec.origin if spec is not None else None


def _import_module(name: str, kind: str) -> ModuleType:
    if _origin(name) is None:
        raise FealError(
            f"There is no module {name} for a {kind} here or among the installed packages: check its name."
        )
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise _import_error(name, error, kind) from error


def _import_error(where: str, error: Exception, kind: str) -> FealError:
    line = traceback.extract_tb(error.__traceback__)[-1]
    what = f"{type(error).__name__}: {error}; {Path(line.filename).name}, line {line.lineno}"
    return FealError(f"The {kind} in {where} cannot be imported ({what}): mend it.")
