"""All methods as users see them: one card each, in the order of tables.

A card is defined in its method's file (``@MethodCard``); this module searches the files of this
package for keys, and imports a file when its method is asked for. Other packages add methods by
entry points of the group ``fedminmax.methods``, whose names are the methods' keys. Such a package
is imported when its method is requested or all are listed.
"""

import hashlib
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from fedminmax import methods
from fedminmax.core.errors import InputError
from fedminmax.methods.card import MethodCard, Over, card_of

GROUP = "fedminmax.methods"
# The line of a card that has its method's key.
CARD_KEY = re.compile(r'^    key="([^"]+)",$', re.MULTILINE)
# The most common ones, listed first in their section.
FIRST = ("fedminmax", "fedminmax-fast", "fedavg", "fedavg-fast", "afl", "afl-fast")


def _sort_key(card: MethodCard) -> tuple[bool, bool, int, str]:
    """Return a card's sort key: methods over groups, then over sites and rows, then parity."""
    order = FIRST.index(card.key) if card.key in FIRST else len(FIRST)
    return card.parity, card.over is not Over.GROUPS, order, card.key


@cache
def _modules() -> Mapping[str, str]:
    """Return the module of each built-in method by its key, as the files' text has it.

    So a command that trains one method does not import the others.
    """
    folder = Path(methods.__path__[0])
    return {
        key: f"{methods.__name__}.{file.stem}"
        for file in sorted(folder.glob("*.py"))
        for key in CARD_KEY.findall(file.read_text(encoding="utf-8"))
    }


class BuiltInMethods(Mapping[str, MethodCard]):
    """The methods of this package; looking one up imports only its own file."""

    def __getitem__(self, key: str) -> MethodCard:
        """Return the card of a method."""
        for value in vars(import_module(_modules()[key])).values():
            card = card_of(value) if isinstance(value, type) else None
            if card is not None and card.key == key:
                return card
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        cards = (self[key] for key in _modules())
        return iter([card.key for card in sorted(cards, key=_sort_key)])

    def __len__(self) -> int:
        return len(_modules())

    def __contains__(self, key: object) -> bool:
        return key in _modules()


BUILT_IN = BuiltInMethods()


@dataclass(frozen=True)
class MethodPackage:
    """The package that a method comes from; ``digest`` is that of the method's own file."""

    method: str
    package: str
    version: str
    digest: str


class Catalogue(Mapping[str, MethodCard]):
    """The built-in methods, then those of installed packages.

    Nothing is cached, so a package that was just installed is found. Looking up a method whose
    package cannot be used raises ``InputError``; iteration skips it.
    """

    def __getitem__(self, key: str) -> MethodCard:
        """Return the card of a method; this imports the package that the method comes from."""
        if key in BUILT_IN:
            return BUILT_IN[key]
        return _load(_entry_point(key))

    def __iter__(self) -> Iterator[str]:
        yield from BUILT_IN
        for key in _installed_keys():
            if key not in BUILT_IN and _problem(key) is None:
                yield key

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, str):
            return False
        return key in BUILT_IN or bool(_entry_points(key))


CARDS = Catalogue()


def unusable_methods() -> list[str]:
    """Return one line for each method of an installed package that cannot be used."""
    found = [_problem(key) for key in _installed_keys()]
    return [problem for problem in found if problem is not None]


def package_of(key: str) -> MethodPackage | None:
    """Return the package of a method; None for a built-in one."""
    if key in BUILT_IN:
        return None
    entry = _entry_point(key)
    try:
        source = inspect.getsource(sys.modules[_load(entry).make.__module__])
    except OSError:
        source = ""
    digest = hashlib.sha256(source.encode()).hexdigest()[:16]
    return MethodPackage(key, _package_name(entry), _version(entry), digest)


def _installed_keys() -> list[str]:
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def _entry_points(key: str) -> list[EntryPoint]:
    return list(entry_points(group=GROUP, name=key))


def _entry_point(key: str) -> EntryPoint:
    """Return the only entry point of this key."""
    entries = _entry_points(key)
    if not entries:
        raise KeyError(key)
    if len(entries) > 1:
        names = " and ".join(sorted(f"'{_package_name(entry)}'" for entry in entries))
        raise InputError(f"method '{key}' is in the packages {names}; uninstall all but one")
    return entries[0]


def _load(entry: EntryPoint) -> MethodCard:
    """Import the package and return the card; an error names the package."""
    owner = f"method '{entry.name}' of the package '{_package_name(entry)}' {_version(entry)}"
    try:
        found = entry.load()
    except (Exception, SystemExit) as error:
        # An error in a foreign package must not stop our own commands.
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(
            f"{owner} cannot be loaded ({reason}); repair or uninstall the package"
        ) from error
    card = card_of(found) if isinstance(found, type) else None
    if card is None:
        raise InputError(
            f"{owner}: {entry.value} is not a class with @fedminmax.extend.MethodCard; "
            "repair or uninstall the package"
        )
    try:
        card.build({})
    except (TypeError, InputError) as error:
        raise InputError(
            f"{owner} cannot be created without options ({error}); its author has to give "
            "defaults, or examples in 'required'"
        ) from error
    if card.key != entry.name:
        raise InputError(
            f"{owner} is registered as '{card.key}'; its entry point must have the same name"
        )
    return card


def _problem(key: str) -> str | None:
    """Return why an installed method cannot be used; None if it can."""
    try:
        if key in BUILT_IN:
            names = " and ".join(sorted(f"'{_package_name(own)}'" for own in _entry_points(key)))
            return (
                f"the package {names} has a method '{key}', which is the name of a built-in one; "
                "it is ignored: its author has to choose another name"
            )
        _load(_entry_point(key))
    except InputError as error:
        return str(error)
    return None


def _package_name(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else "unknown"


def _version(entry: EntryPoint) -> str:
    return entry.dist.version if entry.dist else ""
