"""The kinds of options that only eventlog.toml has: times of day, columns, secrets and URLs."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from eventlog.core.options import OBJECT, STRING, TEXT, OptionKind, parse_name, parse_names, toml_or
from eventlog.core.secrets import REFERENCE
from eventlog.core.start_time import EXAMPLE, parse_start_time
from eventlog.errors import ConfigError
from eventlog.model import LOG_COLUMNS
from eventlog.registry import FORMATS, check_format, check_name, own_names

if TYPE_CHECKING:
    import sqlalchemy as sa


Texts: TypeAlias = Mapping[str, str]
"""The value of an option that has one text per name, such as headers."""


def _parse_times(value: Any) -> tuple[datetime.time, ...]:
    items = (
        value.split(",")
        if isinstance(value, str)
        else value
        if isinstance(value, list)
        else [value]
    )
    times = set()
    for item in items:
        # 24:00:00 is excluded, although Python accepts it as a time from 3.14 on.
        if isinstance(item, str) and re.fullmatch(
            r"\s*(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}\s*", item, re.ASCII
        ):
            item = datetime.time.fromisoformat(item.strip())
        if not isinstance(item, datetime.time) or item.microsecond:
            raise ValueError
        times.add(item)
    if not times:
        raise ValueError
    return tuple(sorted(times))


def _parse_column_map(value: Any) -> Texts:
    real = {str(name).lower(): parse_name(column) for name, column in OBJECT.parse(value).items()}
    if unknown := sorted(set(real) - set(LOG_COLUMNS)):
        raise ValueError(f"{unknown[0]} is not a standard column name")
    if missing := [name for name in LOG_COLUMNS if name not in real]:
        raise ValueError(f"{missing[0]} is missing")
    if len({column.lower() for column in real.values()}) < len(real):
        raise ValueError("two standard names are given the same column")
    return {name: real[name] for name in LOG_COLUMNS}


def _pairs_of_text(text: str) -> dict[str, str]:
    return {
        name.strip(): value.strip()
        for name, _, value in (part.partition("=") for part in text.split(","))
    }


def _parse_publication_mode(value: Any) -> int:
    if value == 2:
        raise ValueError("2 (triggerless) is not supported: the publisher reads what triggers log")
    if value != 1 or isinstance(value, bool):
        raise ValueError
    return 1


_SECRET_PROPERTY: Final = re.compile(
    r"password|passphrase|secret|key\.pem$|oauthbearer\.config|jaas\.config", re.IGNORECASE
)
"""The names of the settings that librdkafka itself does not show (see its CONFIGURATION.md)."""


def librdkafka(section: str) -> OptionKind:
    """Return the kind of a section's librdkafka settings.

    The kind refuses secrets, which must be in ``secret_properties``.
    """

    def parse(value: Any) -> Mapping[str, Any]:
        if not isinstance(value, dict) or not all(
            isinstance(one, str | int | float) for one in value.values()
        ):
            raise ValueError
        for name in filter(_SECRET_PROPERTY.search, value):
            instead = (
                f'write "{name}" = "env:VARIABLE" or "file:/PATH" in {section}.secret_properties'
            )
            if name == "sasl.password":
                instead = (
                    f"set EVENTLOG_{section.upper()}_USER and EVENTLOG_{section.upper()}_PASSWORD"
                )
            raise ValueError(f"{name} is a secret, which must not be in this option; {instead}")
        return dict(value)

    return OptionKind(
        parse,
        '{ "linger.ms" = 20, ... }, without secrets',
        toml_or(_pairs_of_text),
        confidential=True,
    )


def _parse_table(value: Any) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping) or not value:
        raise ValueError
    return dict(value)


def _parse_references(value: Any) -> Texts:
    references = _parse_table(value)
    for name, place in references.items():
        if not isinstance(place, str) or not REFERENCE.fullmatch(place):
            raise ValueError(f"{name} is neither env:VARIABLE nor file:/PATH")
    return references


_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110 5.6.2
_OWN_HEADER: Final = re.compile(
    "(eventlog|webhook)-.*|content-(type|length|encoding)|host|connection|keep-alive|transfer-encoding|te|trailer"
    "|upgrade|expect|accept|accept-encoding",
    re.IGNORECASE,
)
_SECRET_HEADER: Final = re.compile(
    r"authorization|cookie|token|secret|password|signature|api-?key", re.IGNORECASE
)


def _parse_headers(value: Any) -> Texts:
    headers = _parse_table(value)
    for name, text in headers.items():
        if not isinstance(text, str):
            raise ValueError  # noqa: TRY004 - every kind raises ValueError
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} is not a valid header name; use letters, digits and hyphens"
            )
        if _OWN_HEADER.fullmatch(name):
            raise ValueError(f"the publisher sets the header {name} itself; remove it")
        if not text.strip() or not is_header_text(text):
            raise ValueError(
                f"the value of {name} is empty, or has line breaks or characters beyond ASCII"
            )
    return {name: text.strip() for name, text in headers.items()}


def is_header_text(text: str) -> bool:
    """Return True if a text can be the value of a header unchanged."""
    return all(" " <= c <= "~" for c in text)


def _parse_plain_headers(value: Any) -> Texts:
    headers = _parse_headers(value)
    for name in filter(_SECRET_HEADER.search, headers):
        raise ValueError(
            f'{name} is a secret, which must not be in this option; write "{name}" = '
            '"env:VARIABLE" or "file:/PATH" in sink.secret_headers'
        )
    return headers


def _headers_of_text(text: str) -> dict[str, str]:
    parts = (line.partition(":") for line in text.splitlines() if line.strip())
    return {name.strip(): value for name, _, value in parts}


def _parse_mapping(value: Any) -> Mapping[str, Texts]:
    return {
        table: {column: parse_name(to) for column, to in _parse_table(columns).items()}
        for table, columns in _parse_table(value).items()
    }


def _parse_lists(value: Any) -> Mapping[str, tuple[str, ...]]:
    lists = _parse_table(value)
    if not all(isinstance(names, list | tuple) for names in lists.values()):
        raise ValueError
    return {parse_name(name): parse_names(names) for name, names in lists.items()}


_BEGINS: Final = ("latest", "earliest", "snapshot")


def _parse_begin(value: Any) -> str:
    if isinstance(value, bool):
        raise ValueError  # noqa: TRY004
    text = str(value).strip()
    if text in _BEGINS:
        return text
    if re.fullmatch(r"0*[1-9][0-9]{0,17}", text, re.ASCII):
        return str(int(text))
    return parse_start_time(value)


_CONSUMER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", re.ASCII)


def _parse_consumer(value: Any) -> str:
    if not isinstance(value, str) or not _CONSUMER.fullmatch(value):
        raise ValueError
    return value


def _parse_token(value: Any) -> str:
    """Return the token that follows ``Bearer`` in a header. An empty token is refused, since it
    would admit everybody (RFC 6750, 2.1).
    """
    if not isinstance(value, str) or not value or not all("!" <= char <= "~" for char in value):
        raise ValueError
    return value


def named_tokens(text: str) -> dict[str, str]:
    """Return, by name, the tokens of a text that has one line ``name:token`` per token. Raises
    ValueError for other lines, and if a name or a token repeats.
    """
    found: dict[str, str] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, colon, token = line.partition(":")
        if not colon or not name.isprintable() or not name.strip() or name in found:
            raise ValueError
        if _parse_token(token) in found.values():
            raise ValueError
        found[name.strip()] = token
    if not found:
        raise ValueError
    return found


def _parse_tokens(value: Any) -> str:
    text = STRING.parse(value)
    named_tokens(text)
    return str(text)


_SHORTEST_KEY: Final = 16


def _parse_mask_secret(value: Any) -> str:
    """Return the key of the masks ``hash``. A short key is refused, since somebody who guesses it
    can find the values by trial.
    """
    if not isinstance(value, str) or len(value) < _SHORTEST_KEY:
        raise ValueError
    return value


HEADERS: Final = OptionKind(
    _parse_plain_headers,
    '{ "X-Tenant" = "hr", ... }, without secrets',
    toml_or(_headers_of_text),
    confidential=True,
)
SECRET_HEADERS: Final = OptionKind(
    lambda value: _parse_references(_parse_headers(value)),
    '{ "X-Api-Key" = "env:VARIABLE" or "file:/PATH", ... }',
    toml_or(_headers_of_text),
    confidential=True,
)
REFERENCES: Final = OptionKind(
    _parse_references,
    '{ "ssl.key.password" = "env:VARIABLE" or "file:/PATH", ... }',
    toml_or(_pairs_of_text),
    confidential=True,
)
SECRET: Final = OptionKind(STRING.parse, "text", confidential=True)
TOKEN: Final = OptionKind(
    _parse_token, "one or more ASCII characters without spaces", confidential=True
)
TOKENS: Final = OptionKind(
    _parse_tokens, "lines name:token; names and tokens are unique", confidential=True
)
MASK_SECRET: Final = OptionKind(
    _parse_mask_secret, f"text of at least {_SHORTEST_KEY} characters", confidential=True
)
TIMES: Final = OptionKind(_parse_times, "hh:mm:ss, comma-separated", toml_or(str))
COLUMN_MAP: Final = OptionKind(
    _parse_column_map, f"a column for each of {', '.join(LOG_COLUMNS)}", toml_or(_pairs_of_text)
)
PUBLICATION_MODE: Final = OptionKind(_parse_publication_mode, "1 only", int)
BASE: Final = OptionKind(_parse_mapping, "{ base table = { base column = view column, ... }, ... }")
TABLE: Final = OptionKind(
    _parse_table, "a table of options; as text: TOML or JSON", toml_or(json.loads)
)
BEGIN: Final = OptionKind(
    _parse_begin,
    f"latest | earliest | snapshot | a record_id | a time with its zone, such as {EXAMPLE}",
)
CONSUMER: Final = OptionKind(
    _parse_consumer,
    "a name of up to 63 characters of A-Z a-z 0-9 _ . -, whose first is a letter or a digit",
)
LISTS: Final = OptionKind(
    _parse_lists, "{ name = [name, ...], ... }; as text: TOML or JSON", toml_or(json.loads)
)


# --- URLs of databases ----------------------------------------------------------------------------


def url_of(text: str) -> sa.URL:
    """Return the parsed URL. Raises ConfigError."""
    # SQLAlchemy loads slowly, and most commands do not need it.
    from eventlog.sql.connect.connection import parse_url

    return parse_url(text)


def masked(url: str) -> str:
    """Return the URL with its passwords masked, both in the password part and in the query; of a
    URL that cannot be read, return nothing but ``***``.
    """
    try:
        parsed = url_of(url)
    except ConfigError:
        return "***"
    hidden = dict.fromkeys(secrets_of(parsed), "***")
    return (
        parsed.update_query_dict(hidden)
        .render_as_string(hide_password=True)
        .replace("%2A%2A%2A", "***")
    )


_WITHOUT_SECRET: Final = re.compile(r"[a-z]+(\+\w+)?://([^:@/?#]*@)?[^:@/?#]*(:[0-9]+)?(/[^@?#]*)?")


def is_plain(url: str) -> bool:
    """Return True if a pattern shows that a URL certainly contains no password. A probe calls this
    function, since it would take too long to load a parser.
    """
    return _WITHOUT_SECRET.fullmatch(url) is not None


def secrets_of(url: sa.URL) -> list[str]:
    """Return the names of secrets in the query of a URL."""
    return [key for key in url.query if "password" in key.lower() or "secret" in key.lower()]


_FILE_URL: Final = re.compile(
    r"((?:sqlite(?:\+\w+)?|embedded):///)(?!/|:memory:|file:)([^?]+)(\?.*)?", re.IGNORECASE
)
"""The URL of a database that is a file or a directory, with a relative path."""


def from_directory(url: str, directory: Path) -> str:
    """Return the URL of a database in a file with its relative path resolved against a directory;
    return other URLs unchanged.
    """
    match = _FILE_URL.fullmatch(url)
    return url if match is None else f"{match[1]}{directory / match[2]}{match[3] or ''}"


def name_of(group: str) -> OptionKind:
    """Return the kind of an option whose value is a name in a group of the registry.

    Its function ``parse`` raises ConfigError for an unknown name.
    """

    def parse(value: Any) -> str:
        name: str = TEXT.parse(value)
        check_name(group, name)
        return name

    return OptionKind(parse, " | ".join(own_names(group)))


def _parse_published(value: Any) -> str:
    name: str = TEXT.parse(value)
    try:
        check_name(FORMATS, name)
    except ConfigError:
        check_format(name, "publish")
    return name


PUBLISHED: Final = OptionKind(_parse_published, " | ".join(own_names(FORMATS)))
"""Names of formats. Whether a format can be published is checked when it is published."""


URL: Final = OptionKind(
    TEXT.parse,
    "postgresql+psycopg://user@host:5432/database or the like",
    confidential=True,
    shown=masked,
)
"""URLs of databases."""
