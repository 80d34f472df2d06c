"""The trigger templates of the dialects, and the text that each had in earlier versions.

What stands beside a dialect's module is what ``eventlog triggers apply`` uses, and may change with every release. A
migration that was written once gives the same SQL for ever: it names the version of the templates that it was written
with. A template that changes leaves its old text in ``frozen/vN`` of the dialect, N being the last version that had it
(``scripts/freeze_templates.py``); a template that never changed has no copy. A test knows the hash of every version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Final

from eventlog.errors import ConfigError

if TYPE_CHECKING:
    import jinja2

CURRENT: Final = 1
"""The version of the templates in use. To be raised with every change of what they make, once it was released."""

_version: ContextVar[int] = ContextVar("version of the trigger templates", default=CURRENT)


@contextmanager
def frozen(version: int) -> Iterator[None]:
    """What is compiled in the block is of the templates of a version. Raises ConfigError for an unknown one."""
    if not 1 <= version <= CURRENT:
        raise ConfigError(
            f"there are no trigger templates of version {version}, only up to {CURRENT}: the migration was written "
            "with a newer eventlog; install that one"
        )
    token = _version.set(version)
    try:
        yield
    finally:
        _version.reset(token)


def read(package: str, name: str, version: int) -> str:
    """The text that a dialect's template had in a version: the first copy from then on, else the one in use."""
    folder = resources.files(package)
    for later in range(version, CURRENT):
        copy = folder.joinpath("frozen", f"v{later}", name)
        if copy.is_file():
            return copy.read_text(encoding="utf-8")
    return folder.joinpath(name).read_text(encoding="utf-8")


@dataclass(frozen=True, eq=False)
class Templates:
    """The templates of a dialect's package. ``filters`` quote texts, ``functions`` make SQL of columns."""

    package: str
    filters: Mapping[str, Callable[[str], str]] = field(default_factory=dict)
    functions: Mapping[str, Callable[..., object]] = field(default_factory=dict)

    def render(self, template: str, /, **values: object) -> str:
        """The text of a template, of the version in force; everything in it is quoted by its filters."""
        return _environment(self, _version.get()).get_template(template).render(**values)


@cache
def _environment(templates: Templates, version: int) -> jinja2.Environment:
    import jinja2  # seldom needed, and slow to load

    loader = jinja2.FunctionLoader(lambda name: read(templates.package, name, version))
    environment = jinja2.Environment(  # noqa: S701 - SQL, quoted by filters
        loader=loader, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= templates.filters
    environment.globals |= templates.functions
    return environment
