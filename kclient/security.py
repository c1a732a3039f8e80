"""How a client authenticates itself and its brokers, as one value.

``Security`` is made by its class methods only, so that combinations that can't work can't be
written.
"""

from __future__ import annotations

import os
import ssl
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack, cast

from kclient.credentials import SCRAM, Kerberos, PasswordSource, Sasl, StaticPassword, TokenSource
from kclient.errors import InvalidConfig
from kclient.frozen import Frozen, frozen
from kclient.secret import Secret

if TYPE_CHECKING:
    from kclient.tls import TlsContext, TlsOptions

ScramMechanism: TypeAlias = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]


@frozen
class Security(Frozen):
    """Transport security and authentication of every connection of a client.

    Attributes:
        tls_context: Gives the context of the next connection; None for plaintext.
        sasl: Mechanism and credentials; None without SASL.
    """

    tls_context: ssl.SSLContext | TlsContext | None = None
    sasl: Sasl | None = None

    def __post_init__(self) -> None:
        context = self.tls_context
        if context is not None and not hasattr(context, "current"):
            if not isinstance(context, ssl.SSLContext):
                raise InvalidConfig(
                    f"Security({context!r}) can't be used: it is made by Security.tls(...), "
                    ".sasl_plain(...) and the like"
                )

    @property
    def ssl_context(self) -> ssl.SSLContext | None:
        """The context for a connection that is made now; None for plaintext."""
        context = self.tls_context
        if context is None or isinstance(context, ssl.SSLContext):
            return context
        return context.current()

    @property
    def protocol(self) -> str:
        """Kafka's name of it: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
        transport = "PLAINTEXT" if self.tls_context is None else "SSL"
        return transport if self.sasl is None else f"SASL_{transport}"

    @classmethod
    def plaintext(cls) -> Security:
        """No encryption and no authentication: Kafka's PLAINTEXT listeners."""
        return cls()

    @classmethod
    def tls(
        cls,
        *,
        ca_file: str | os.PathLike[str] | None = None,
        ca: str | None = None,
        ca_password: str | Secret | None = None,
        certificate_file: str | os.PathLike[str] | None = None,
        certificate: str | None = None,
        key_file: str | os.PathLike[str] | None = None,
        key: str | Secret | None = None,
        key_password: str | Secret | None = None,
        ssl_context: ssl.SSLContext | None = None,
        insecure_skip_hostname: bool = False,
        insecure_skip_verification: bool = False,
    ) -> Security:
        """TLS with the broker's certificate and host name verified: Kafka's SSL listeners.

        Files are read again when they have changed, for the connections that are made from then on.
        PKCS#12, and a certificate or key as text, need ``kclient[tls]``; a key is never written to
        disk unencrypted.

        Args:
            ca_file: PEM or PKCS#12 file of the authorities to trust; the system's by default.
            ca: The same as PEM text.
            ca_password: Password of a PKCS#12 ``ca_file``.
            certificate_file: The client's own certificate, for mutual TLS: PEM with the chain, or
                PKCS#12 with the key, too.
            certificate: The same as PEM text.
            key_file: PEM file of its key, if it isn't beside the certificate.
            key: The same as PEM text.
            key_password: Password of that key, or of the PKCS#12 file.
            ssl_context: A context made by the caller, used as it is, instead of all the others.
            insecure_skip_hostname: Take a certificate of the authorities for whatever host it is:
                whoever has one of theirs can be any broker.
            insecure_skip_verification: Trust whoever answers. For tests: anyone on the way can read
                and change everything.

        Raises:
            InvalidConfig: A part is missing or unusable, or two say the same.
        """
        for name, value in list(locals().items()):
            if isinstance(value, str | Secret) and not value:
                raise InvalidConfig(f"{name} is empty: leave it out, or give a value")
        for name, flag in (
            ("insecure_skip_hostname", insecure_skip_hostname),
            ("insecure_skip_verification", insecure_skip_verification),
        ):
            _check_flag(name, flag)
        parts: dict[str, Any] = {
            "ca_file": os.fspath(ca_file) if ca_file else None,
            "ca": ca,
            "ca_password": _secret(ca_password),
            "certificate_file": os.fspath(certificate_file) if certificate_file else None,
            "certificate": _secret(certificate),
            "key_file": os.fspath(key_file) if key_file else None,
            "key": _secret(key),
            "key_password": _secret(key_password),
            "insecure_skip_hostname": insecure_skip_hostname,
            "insecure_skip_verification": insecure_skip_verification,
        }
        if ssl_context is not None:
            if any(parts.values()):
                raise InvalidConfig("ssl_context is used as it is: give no file or password beside")
            if not isinstance(ssl_context, ssl.SSLContext):
                raise InvalidConfig(
                    f"ssl_context={ssl_context!r} can't be used: allowed is an ssl.SSLContext"
                )
            return cls(ssl_context)
        from kclient.tls import TlsContext, TlsSettings

        return cls(TlsContext(TlsSettings(**parts)))

    @classmethod
    def sasl_plain(
        cls,
        username: str | None = None,
        password: str | Secret | None = None,
        *,
        credentials: PasswordSource | None = None,
        unencrypted: bool = False,
        **tls: Unpack[TlsOptions],
    ) -> Security:
        """SASL PLAIN: name and password are sent to the broker, over TLS.

        Args:
            username: Name of the user.
            password: Its password.
            credentials: Instead of both, a function that returns ``(username, password)``, or
                awaits it. It is called for each connection and each renewal of a session, so that a
                password may change. One that isn't a coroutine function runs in a thread.
            unencrypted: The listener is SASL_PLAINTEXT: the password can be read by anyone on the
                way. Nothing but this makes a client send it so.
            tls: As of ``tls``.

        Raises:
            InvalidConfig: Something is missing, doubled or unusable.
        """
        sasl = Sasl("PLAIN", passwords=_passwords(username, password, credentials))
        return cls._with_sasl(sasl, unencrypted, tls)

    @classmethod
    def sasl_scram(
        cls,
        username: str | None = None,
        password: str | Secret | None = None,
        *,
        mechanism: ScramMechanism = "SCRAM-SHA-512",
        credentials: PasswordSource | None = None,
        delegation_token: bool = False,
        unencrypted: bool = False,
        **tls: Unpack[TlsOptions],
    ) -> Security:
        """SASL SCRAM: a password is proved and not sent, and the broker proves that it knows it.

        Args:
            username: Name of the user, or id of a delegation token.
            password: Its password, or the token's HMAC.
            mechanism: The one that the broker has the password for.
            credentials: As of ``sasl_plain``.
            delegation_token: They are those of a delegation token (KIP-48).
            unencrypted: The listener is SASL_PLAINTEXT: the data can be read by anyone on the way.
            tls: As of ``tls``.

        Raises:
            InvalidConfig: Something is missing, doubled or unusable.
        """
        if mechanism not in SCRAM:
            raise InvalidConfig(
                f"mechanism={mechanism!r} can't be used: allowed are {' and '.join(SCRAM)}"
            )
        sasl = Sasl(
            mechanism,
            passwords=_passwords(username, password, credentials),
            delegation_token=delegation_token,
        )
        return cls._with_sasl(sasl, unencrypted, tls)

    @classmethod
    def oauth(
        cls, token: TokenSource, *, unencrypted: bool = False, **tls: Unpack[TlsOptions]
    ) -> Security:
        """SASL OAUTHBEARER: a token that an authority of the broker's has issued.

        Args:
            token: A function that returns or awaits a ``Token``, or a JWT as text. It is called
                once for all connections of a client, and again after 80% of the token's life; while
                the last one is valid, it may fail. One that isn't a coroutine function runs in a
                thread. ``ClientCredentials``, ``JwtBearer`` and ``TokenFile`` are such functions.
            unencrypted: The listener is SASL_PLAINTEXT: the token can be read, and used, by anyone
                on the way. Nothing but this makes a client send it so.
            tls: As of ``tls``.

        Raises:
            InvalidConfig: Something is unusable.
        """
        if not callable(token):
            raise InvalidConfig(f"token is a {type(token).__name__}: allowed is a function")
        return cls._with_sasl(Sasl("OAUTHBEARER", tokens=token), unencrypted, tls)

    @classmethod
    def msk_iam(
        cls,
        region: str | None = None,
        *,
        profile: str | None = None,
        role_arn: str | None = None,
        **tls: Unpack[TlsOptions],
    ) -> Security:
        """IAM of Amazon MSK: SASL OAUTHBEARER with tokens that credentials of AWS have signed.

        It needs ``kclient[msk]``. Credentials are looked up for each token, in a thread, where
        AWS's tools find them; a token is used for twelve of its fifteen minutes.

        Args:
            region: Where the cluster is, such as ``eu-west-1``; by default that of the AWS profile.
            profile: Its name in AWS's shared files; by default that of ``AWS_PROFILE``.
            role_arn: A role that is assumed with the credentials, by AWS's STS.
            tls: As of ``tls``.

        Raises:
            InvalidConfig: Something is missing or unusable.
        """
        from kclient.msk_iam import MskIamTokens

        tokens = MskIamTokens(region, profile, role_arn)
        return cls._with_sasl(Sasl("OAUTHBEARER", tokens=tokens), False, tls)

    @classmethod
    def gssapi(
        cls,
        *,
        principal: str | None = None,
        keytab: str | os.PathLike[str] | None = None,
        service_name: str = "kafka",
        unencrypted: bool = False,
        **tls: Unpack[TlsOptions],
    ) -> Security:
        """SASL GSSAPI: a Kerberos ticket, by default of the ticket cache.

        It needs ``kclient[gssapi]``, and Kerberos of the system.

        Args:
            principal: Whose ticket, as ``orders@EXAMPLE.COM``; by default that of the cache.
            keytab: The file with the principal's key: tickets are got with it, and renewed, in
                memory.
            service_name: The first part of the brokers' principals; the second is the host name
                that a broker advertises.
            unencrypted: The listener is SASL_PLAINTEXT: the data can be read by anyone on the way.
            tls: As of ``tls``.

        Raises:
            InvalidConfig: Something is missing or unusable.
        """
        try:
            import gssapi  # noqa: F401
        except ImportError as error:
            raise InvalidConfig(
                f"GSSAPI needs a package more: {error}",
                hint="pip install 'kclient[gssapi]'; docs/security.md says what that needs",
            ) from error
        kerberos = Kerberos(principal, None if keytab is None else os.fspath(keytab), service_name)
        return cls._with_sasl(Sasl("GSSAPI", kerberos=kerberos), unencrypted, tls)

    @classmethod
    def _with_sasl(cls, sasl: Sasl, unencrypted: bool, tls: TlsOptions) -> Security:
        from kclient.tls import TlsOptions as Known

        _check_flag("unencrypted", unencrypted)
        known = Known.__annotations__
        for name in tls:
            if name not in known:
                raise InvalidConfig(
                    f"{name!r} is no argument: for TLS there are {', '.join(known)}"
                )
        if not unencrypted:
            return cls(cls.tls(**tls).tls_context, sasl)
        given = [name for name, value in tls.items() if value]
        if given:
            raise InvalidConfig(f"unencrypted=True uses no TLS: leave out {', '.join(given)}")
        return cls(None, sasl)


def _check_flag(name: str, flag: object) -> None:
    """Text such as "no" would be true."""
    if not isinstance(flag, bool):
        raise InvalidConfig(f"{name}={flag!r} can't be used: allowed are True and False")


def _secret(given: str | Secret | None) -> Secret | None:
    return Secret(given) if given else None


def _passwords(
    username: str | None, password: str | Secret | None, credentials: PasswordSource | None
) -> PasswordSource:
    if credentials is None:
        return cast("PasswordSource", StaticPassword(username, password))
    if username is not None or password is not None:
        raise InvalidConfig("credentials gives username and password: leave those out")
    if not callable(credentials):
        raise InvalidConfig(f"credentials is a {type(credentials).__name__}: allowed is a function")
    return credentials
