"""The options by which a client gets tokens of OAuth 2 (spec/event-log.md 8.4, *Tokens*)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from eventlog.core.options import (
    PATH,
    REQUIRED,
    TEXT,
    WEB_URL,
    CheckedOptions,
    Option,
    OptionKind,
    choice,
    instance_of,
    matching,
    option,
    options_of,
    parse_options,
    toml_or,
)
from eventlog.core.secrets import REFERENCE, referenced_secret


def _parse_absolute(value: Any) -> Path:
    # A path within a table is not resolved against the directory of the file.
    path: Path = PATH.parse(value)
    if not path.is_absolute():
        raise ValueError
    return path


@dataclass(frozen=True, slots=True)
class OAuthOptions(CheckedOptions):
    """A client of OAuth 2 that gets tokens by its own credentials (RFC 6749, 4.4). Without a secret
    it identifies itself by the client certificate (RFC 8705). Raises ConfigError.
    """

    token_url: str = option(REQUIRED, WEB_URL, "URL of the token endpoint")
    client_id: str = option(REQUIRED, TEXT, "id of the client")
    client_secret: str | None = option(
        None,
        matching(REFERENCE.pattern, "env:VARIABLE or file:/PATH", confidential=True),
        "the place of the client's secret",
    )
    scope: str | None = option(None, TEXT, "scopes, separated by blanks")
    audience: str | None = option(None, TEXT, "audience of the token")
    auth: str = option("basic", choice("basic", "post"), "where the secret goes: header or body")
    ca_file: Path | None = option(
        None, OptionKind(_parse_absolute, "an absolute path"), "certificates to trust"
    )
    proxy: str | None = option(None, WEB_URL, "proxy for requests to token_url: http://HOST:PORT")


def _parse_oauth(value: Any) -> OAuthOptions:
    if isinstance(value, OAuthOptions):
        return value
    return parse_options(OAuthOptions, instance_of(Mapping)(value), "the table")


def _shown(options: OAuthOptions) -> dict[str, Any]:
    """Return the options that are set. The secret is only a reference."""
    declared = options_of(OAuthOptions)
    return {
        name: declared[name].kind.shown(value)
        for name in declared
        if (value := getattr(options, name)) != declared[name].default
    }


OAUTH: Final = Option(
    None,
    OptionKind(
        _parse_oauth,
        "{ token_url, client_id, client_secret = env:VARIABLE or file:/PATH, scope, audience, "
        "auth = basic | post, ca_file, proxy }",
        toml_or(json.loads),
        confidential=True,
        shown=_shown,
    ),
    "client credentials of OAuth 2, with which each request gets a bearer token; also as a section",
    example={
        "token_url": "https://login.example.org/token",
        "client_id": "eventlog",
        "client_secret": "file:/run/secrets/client-secret",
    },
)
"""The option with which an HTTP client gets tokens."""


def client_secret(options: OAuthOptions, section: str) -> str | None:
    """Return the secret that ``client_secret`` refers to, None if this option is not set.
    ``section`` is the section of the options. Raises ConfigError.
    """
    if options.client_secret is None:
        return None
    return referenced_secret(options.client_secret, f"{section}.client_secret").strip()
