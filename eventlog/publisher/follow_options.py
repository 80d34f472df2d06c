"""Which options of the configuration count where a source is followed in place of a log.

What is set and has no meaning there is refused, so that nobody waits for its effect. Options that are about a log may
stand in a file that serves both: they are passed over, and named when the publisher starts.
"""

from __future__ import annotations

from typing import Final

from eventlog.config.load import Config, PublisherSettings, SourceSettings
from eventlog.config.options import options_of, toml
from eventlog.errors import ConfigError

STANDARD_INPUT: Final = "-"

_COUNTING: Final = frozenset({
    "profile", "publisher_disabled", "batch_size", "query_limit", "heartbeat_interval", "retry_initial", "retry_max",
    "on_retry", "max_parked", "concurrency", "flight_rows", "mark_interval", "health_file",
})  # fmt: skip
"""Of [publisher]."""

_OF_ALL: Final = frozenset({"type", "reader", "catalog"})
_OF_FILE: Final = frozenset({"position_file"})
_OF_TABLE: Final = frozenset({"position_url", "position_url_file", "position_password", "position_table"})
_OF_KIND: Final = {
    "a capture in files": frozenset({"path", "poll_interval"}),
    "a capture on standard input": frozenset({"path"}),
    "a session with a server": frozenset({"connect", "server", "capture"}),
    "linter": frozenset({"url", "url_file", "password", "queue_table", "attrs_table", "schema_name", "poll_interval"}),
    "qlik-messages": frozenset({"brokers", "topics", "properties", "user", "password"}),
}


def check_options(config: Config) -> None:
    """Raises ConfigError for an option that was set and would have no effect on this source."""
    settings, kind = config.source, _kind(config.source)
    place = _OF_FILE if settings.position_file is not None else _OF_TABLE
    for name in _given(config, "source", SourceSettings):
        if name not in _OF_ALL | _OF_KIND[kind] | _OF_FILE | _OF_TABLE:
            raise ConfigError(f"{config.sources[f'source.{name}']} has no meaning for {kind}: leave it out")
        if name in (_OF_FILE | _OF_TABLE) - place:
            raise ConfigError(
                f"{config.sources[f'source.{name}']} has no meaning where the position is in "
                f"{'position_file' if place is _OF_FILE else 'a table'}: leave it out"
            )
    if config.publisher.time_of_day:
        raise ConfigError(
            f"{config.sources['publisher.time_of_day']} is for a log; a source is followed all the time: leave it out, "
            "or run `eventlog publish --once` at these times"
        )
    for name, usual in (("emit_keys", False), ("noop_updates", "drop"), ("referential", "value")):
        value = getattr(config.format, name)
        if value == usual or (name == "referential" and settings.catalog is not None):
            continue
        instead = "needs source.catalog" if name == "referential" else "is for a log: leave it out"
        raise ConfigError(f"{config.sources[f'format.{name}']} = {toml(value)} {instead}")


def passed_over(config: Config) -> list[str]:
    """The options about a log that were set and do not count."""
    return [f"publisher.{name}" for name in _given(config, "publisher", PublisherSettings) if name not in _COUNTING]


def _given(config: Config, section: str, settings: type) -> list[str]:
    """The options of a section that were set, in whatever way."""
    unset = ("default", "profile idm")
    return [name for name in options_of(settings) if config.sources[f"{section}.{name}"] not in unset]


def _kind(settings: SourceSettings) -> str:
    if settings.type != "gbase":
        return settings.type or ""
    if settings.path is None:
        return "a session with a server"
    return "a capture on standard input" if settings.path.name == STANDARD_INPUT else "a capture in files"
