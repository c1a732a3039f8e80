"""How a client authenticates itself and its brokers, as one value.

``Security`` is made by its class methods only, so that combinations that can't work can't be
written. SASL mechanisms get their own class methods here when they come.
"""

from __future__ import annotations

import os
import ssl

from kclient.errors import InvalidConfig
from kclient.frozen import Frozen, frozen


@frozen
class Security(Frozen):
    """Transport security of every connection of a client.

    Attributes:
        ssl_context: The context for TLS, None for plaintext.
    """

    ssl_context: ssl.SSLContext | None = None

    def __post_init__(self) -> None:
        if self.ssl_context is not None and not isinstance(self.ssl_context, ssl.SSLContext):
            raise InvalidConfig(
                f"ssl_context={self.ssl_context!r} can't be used: allowed is an ssl.SSLContext"
            )

    @classmethod
    def plaintext(cls) -> Security:
        """No encryption and no authentication: Kafka's PLAINTEXT listeners."""
        return cls()

    @classmethod
    def tls(
        cls,
        *,
        ca_file: str | os.PathLike[str] | None = None,
        certificate_file: str | os.PathLike[str] | None = None,
        key_file: str | os.PathLike[str] | None = None,
        key_password: str | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> Security:
        """TLS with the broker's certificate and host name verified: Kafka's SSL listeners.

        Args:
            ca_file: PEM file of the authorities to trust; the system's by default.
            certificate_file: PEM file of the client's own certificate, for mutual TLS.
            key_file: PEM file of its key, if it isn't in ``certificate_file``.
            key_password: Password of that key.
            ssl_context: A context made by the caller, used as it is, instead of all the others.

        Raises:
            InvalidConfig: A file is missing or unusable, or ``ssl_context`` came with others.
        """
        if ssl_context is not None:
            if ca_file or certificate_file or key_file or key_password:
                raise InvalidConfig("ssl_context is used as it is: give no file or password beside")
            return cls(ssl_context)
        if certificate_file is None and (key_file is not None or key_password is not None):
            raise InvalidConfig("key_file and key_password need certificate_file beside them")
        try:
            context = ssl.create_default_context(cafile=os.fspath(ca_file) if ca_file else None)
            # RFC 6125: a common name is not a host name; Python still falls back to it.
            context.hostname_checks_common_name = False
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            if certificate_file is not None:
                # Without a password OpenSSL would ask for one on the terminal.
                context.load_cert_chain(certificate_file, key_file, key_password or _no_password)
        except (OSError, ssl.SSLError) as error:
            files = [os.fspath(f) for f in (ca_file, certificate_file, key_file) if f]
            raise InvalidConfig(f"TLS can't be set up from {', '.join(files)}: {error}") from error
        return cls(context)


def _no_password() -> str:
    raise InvalidConfig("the key is encrypted: key_password is needed")
