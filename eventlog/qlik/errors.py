"""The errors of the Qlik formats, each named as spec/qlik.md names it.

Beside them stand those that all formats share: UnknownOperation, NotExpressible, ValueRange, InvalidChange.
"""

from __future__ import annotations

from eventlog.errors import FormatError


class BadMask(FormatError):
    """A mask text with a character that is no hex digit (spec/qlik.md 2.2)."""

    code = "bad_mask"


class MaskTooWide(FormatError):
    """A column list whose last column has no place in the 1024 bits of a mask (spec/qlik.md 2.1)."""

    code = "mask_too_wide"


class BadSequence(FormatError):
    """A change_seq that is not 35 digits beginning with a date and time (spec/qlik.md 3)."""

    code = "bad_sequence"


class SequenceExhausted(FormatError):
    """The change number of a task has reached its 19 digits (spec/qlik.md 3)."""

    code = "sequence_exhausted"


class MissingHeader(FormatError):
    """A change table without a header column that the reader cannot do without (spec/qlik.md 1.1)."""

    code = "missing_header"


class OperationMismatch(FormatError):
    """A row whose change_oper and operation disagree (spec/qlik.md 1.1)."""

    code = "operation_mismatch"


class UnpairedBeforeImage(FormatError):
    """A before image (B) without its update (U) (spec/qlik.md 7)."""

    code = "unpaired_before_image"


class BadMagic(FormatError):
    """A message envelope that does not begin with the magic ``atMSG`` (spec/qlik.md 5.1)."""

    code = "bad_magic"


class UnknownSchema(FormatError):
    """A message whose payload schema is not known (spec/qlik.md 5.1)."""

    code = "unknown_schema"


class BadMetadata(FormatError):
    """A metadata message that lacks what data messages need of it (spec/qlik.md 5.2)."""

    code = "bad_metadata"


class BadEnvelope(FormatError):
    """A record that is neither an envelope nor a message without one (spec/qlik.md 5.1, 5.7)."""

    code = "bad_envelope"


class BadMessageValue(FormatError):
    """What stands in a message is no value of its column's type (spec/qlik.md 5.4)."""

    code = "bad_message_value"


class RegistryError(FormatError):
    """The registry cannot be reached, or refuses a schema."""

    code = "registry"


class BadAvro(FormatError):
    """Bytes that are not what their Avro schema says, or a schema that is none."""

    code = "bad_avro"
