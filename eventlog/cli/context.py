"""What the global options say, and the configuration that follows from them."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from eventlog.cli.output import note
from eventlog.config.load import Config, load

DEFAULT_FILE: Final = Path("eventlog.toml")


@dataclass(frozen=True, slots=True)
class Context:
    """The global options. ``config_file`` is None if none was named; ``flags``: ``section.key`` -> text."""

    config_file: Path | None
    flags: Mapping[str, str]
    quiet: bool = False
    verbose: int = 0

    def config(self, **flags: str | None) -> Config:
        """The configuration, with a command's own flags (``publisher__batch_size="10"``) over the global ones.

        Without --config, eventlog.toml is read if it is there. Warnings are shown. Raises ConfigError.
        """
        path = self.config_file or (DEFAULT_FILE if DEFAULT_FILE.exists() else None)
        own = {name.replace("__", "."): value for name, value in flags.items() if value is not None}
        config = load(path, os.environ, {**self.flags, **own})
        for warning in config.warnings:
            note(f"warning: {warning}")
        return config


def configure_logging(quiet: bool, verbose: int) -> None:
    """Log lines of eventlog go to standard error: warnings, usually also info, with --verbose debug."""
    level = logging.WARNING if quiet else logging.DEBUG if verbose else logging.INFO
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("eventlog").setLevel(level)
