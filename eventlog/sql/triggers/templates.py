"""The trigger templates of the dialects, and their frozen versions.

What stands beside a dialect's module is what ``eventlog triggers apply`` uses, and may change with every release. A
migration that was written once gives the same SQL for ever: it names the version of the templates that it was written
with, and a copy of that version lies under ``frozen/vN`` of the dialect. ``scripts/freeze_templates.py`` makes the
copies; a test knows their hashes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import resources
from typing import Final

from eventlog.errors import ConfigError

CURRENT: Final = 1
"""The version of the templates in use. To be raised with every change of what they make, once it was released."""

_in_force: ContextVar[int | None] = ContextVar("version of the trigger templates", default=None)


@contextmanager
def frozen(version: int) -> Iterator[None]:
    """What is compiled in the block is of the frozen templates of a version. Raises ConfigError for an unknown one."""
    if not 1 <= version <= CURRENT:
        raise ConfigError(
            f"there are no trigger templates of version {version}, only up to {CURRENT}: the migration was written "
            "with a newer eventlog; install that one"
        )
    token = _in_force.set(version)
    try:
        yield
    finally:
        _in_force.reset(token)


def version_in_force() -> int | None:
    """The frozen version in force, None = the templates in use; fit as the key of a cache."""
    return _in_force.get()


def read(package: str, name: str, version: int | None) -> str:
    """The text of a dialect's template. ``package``: the dialect's; ``version`` None = the one in use."""
    folder = resources.files(package)
    if version is not None:
        folder = folder.joinpath("frozen", f"v{version}")
    return folder.joinpath(name).read_text(encoding="utf-8")
