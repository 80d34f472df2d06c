"""Proof that a target equals the source while both change (spec/verify.md).

``rule`` decides which objects can be compared, ``comparison`` compares two rows of an object,
``targets`` reads what is compared, ``verification`` does all of it in rounds, ``session`` begins at
a configuration, and ``report`` is the result.
"""

from __future__ import annotations

from eventlog.verify.report import VerifyReport
from eventlog.verify.session import verify
from eventlog.verify.verification import VerifyOptions

__all__ = ["VerifyOptions", "VerifyReport", "verify"]
