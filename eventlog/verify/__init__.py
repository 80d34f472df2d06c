"""Prove that a target equals the source while both change (spec/verify.md).

``rule`` decides which objects can be compared, ``comparison`` compares two rows of an object,
``targets`` reads what is compared, ``verification`` does all of this in rounds, ``session`` opens
everything that a configuration names, and ``report`` has the result.
"""

from __future__ import annotations

from eventlog.verify.report import VerifyReport
from eventlog.verify.session import verify
from eventlog.verify.verification import VerifyOptions

__all__ = ["VerifyOptions", "VerifyReport", "verify"]
