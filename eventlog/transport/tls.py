"""The TLS context of clients, with the options ``ca_file``, ``client_certificate`` and
``client_key``.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from eventlog.errors import ConfigError


def tls_context(
    section: str, ca_file: Path | None, certificate: Path | None, key: Path | None
) -> ssl.SSLContext:
    """Return a TLS context that verifies the server's certificate and name, with TLS 1.2 or later.

    ``section`` is the section of the configuration that has options with these names; messages name
    it. ``section`` is empty if there is no section. ``ca_file`` is a PEM file with the only trusted
    authorities; None = the authorities of the system. ``certificate`` is a PEM file with our
    certificate, and with its key unless ``key`` is given; the key has no passphrase. Raises
    ConfigError.
    """
    prefix = f"{section}." if section else ""
    if key is not None and certificate is None:
        raise ConfigError(f"{prefix}client_key needs {prefix}client_certificate")
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise ConfigError(
            f"{prefix}ca_file {ca_file}: {_pem_trouble(error)}; it must contain PEM certificates"
        ) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if certificate is not None:
        files = f"{certificate}" if key is None else f"{certificate}, client_key {key}"
        try:
            context.load_cert_chain(certificate, key, password=_no_passphrase)
        except OSError as error:
            raise ConfigError(
                f"{prefix}client_certificate {files}: {_pem_trouble(error)}; a PEM certificate and "
                "its key are needed"
            ) from None
    return context


def _no_passphrase() -> str:
    # Without this function OpenSSL asks for the passphrase on the terminal.
    raise ConfigError("the key of client_certificate is encrypted; use a key without a passphrase")


def _pem_trouble(error: OSError) -> str:
    return str(getattr(error, "reason", None) or error.strerror or error)
