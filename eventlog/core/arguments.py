"""Check the arguments of a public function when it is called. An error that comes later would not
show which argument was wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, Final, NamedTuple

from eventlog.errors import ConfigError, kind_of


class Kind(NamedTuple):
    """What an argument has to be: the check, and the words for a message."""

    holds: Callable[[Any], bool]
    in_words: str


def instance_of_type(kinds: Any, in_words: str) -> Kind:
    """Return the kind of the objects of a type, or of one of several types."""
    return Kind(lambda value: isinstance(value, kinds), in_words)


PATH: Final = instance_of_type(str | PathLike, "a path")
PATH_OR_URL: Final = instance_of_type(str | PathLike, "a path or a URL")
NAME: Final = instance_of_type(str, "a text")
OPTIONS: Final = instance_of_type(Mapping | None, "a dict of options")


def check_arguments(function: str, **arguments: tuple[object, Kind]) -> None:
    """Raise ConfigError for the first argument that is not of its kind."""
    for name, (value, kind) in arguments.items():
        if not kind.holds(value):
            raise ConfigError(
                f"{function}: the argument {name} is {kind_of(value)}; give {kind.in_words}"
            )
