"""The errors of the Qlik formats, each named as spec/qlik.md names it.

Beside them stand those that all formats share: UnknownOperation, NotExpressible, ValueRange, InvalidChange.
"""

from __future__ import annotations

from eventlog.errors import FormatError


class BadMask(FormatError):
    """A mask text with a character that is no hex digit (spec/qlik.md 2.2)."""

    code = "bad_mask"
    cure = "Store masks as bytes or as hex text."


class MaskTooWide(FormatError):
    """A column list whose last column has no place in the 1024 bits of a mask (spec/qlik.md 2.1)."""

    code = "mask_too_wide"
    cure = "Leave out header columns, or split the table."


class BadSequence(FormatError):
    """A change_seq that is not 35 digits beginning with a date and time (spec/qlik.md 3)."""

    code = "bad_sequence"
    cure = "Store the change sequence as text, unchanged."


class SequenceExhausted(FormatError):
    """The change number of a task has reached its 19 digits (spec/qlik.md 3)."""

    code = "sequence_exhausted"
    cure = "Begin a new task with a log or a state of its own."


class MissingHeader(FormatError):
    """A change table without a header column that the reader cannot do without (spec/qlik.md 1.1)."""

    code = "missing_header"
    cure = "Correct `header_prefix`, or have the column stored."


class OperationMismatch(FormatError):
    """A row whose change_oper and operation disagree (spec/qlik.md 1.1)."""

    code = "operation_mismatch"
    cure = "Correct the row: both columns name one operation."


class UnpairedBeforeImage(FormatError):
    """A before image (B) without its update (U) (spec/qlik.md 7)."""

    code = "unpaired_before_image"
    cure = "Read the change table whole, with the row of the update."


class BadMagic(FormatError):
    """A message envelope that does not begin with the magic ``atMSG`` (spec/qlik.md 5.1)."""

    code = "bad_magic"
    cure = "Check that the topic or file holds Qlik messages."


class UnknownSchema(FormatError):
    """A message whose payload schema is not known (spec/qlik.md 5.1)."""

    code = "unknown_schema"
    cure = "Read the metadata messages too (`metadata_topic`), or set `registry`."


class BadMetadata(FormatError):
    """A metadata message that lacks what data messages need of it (spec/qlik.md 5.2)."""

    code = "bad_metadata"
    cure = "Have the Qlik task publish its metadata again."


class BadEnvelope(FormatError):
    """A record that is no message of Qlik, with or without an envelope (spec/qlik.md 5.1, 5.7)."""

    code = "bad_envelope"
    cure = "Check that the topic or file holds Qlik messages; set `table` and `schema` if they name none."


class BadMessageValue(FormatError):
    """A message holds what is no value of its column's type (spec/qlik.md 5.4)."""

    code = "bad_message_value"
    cure = "Correct the column's type in `columns` or in the catalogue."


class RegistryError(FormatError):
    """The registry cannot be reached, or refuses a schema."""

    code = "registry"
    cure = "Check `registry` and EVENTLOG_REGISTRY_AUTH, and look into the registry's own log."


class BadAvro(FormatError):
    """Bytes that are not of their Avro schema, or a schema that cannot be read."""

    code = "bad_avro"
    cure = "Give the reader the schema that the messages are written in, by their metadata or by `registry`."
