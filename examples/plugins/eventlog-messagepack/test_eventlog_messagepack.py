"""The format passes eventlog's conformance kit."""

import pytest
from eventlog_messagepack import FORMAT

from eventlog.testing.format_kit import *  # noqa: F403
from eventlog.testing.format_kit import FormatCase


@pytest.fixture
def format_case() -> FormatCase:
    return FormatCase(FORMAT)
