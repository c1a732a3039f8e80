"""``ClusterSecurity``: how a ``Cluster`` lets clients in, by TLS and by name and password."""

from __future__ import annotations

import hashlib
import math
import ssl
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from kclient.clock import wall_seconds
from kclient.credentials import SCRAM, Token, checked_name, checked_password
from kclient.errors import InvalidArgument, InvalidConfig
from kclient.secret import Secret
from kclient.security import Security
from kclient.testing.arguments import flag, seconds_of
from kclient.testing.authorizer import Authorizer
from kclient.testing.sasl import ITERATIONS, ScramCredential, scram_credential
from kclient.testing.server_certificate import ServerCertificate
from kclient.testing.token_signer import TokenSigner

if TYPE_CHECKING:
    from kclient.credentials import TokenSource

MECHANISMS = ("PLAIN", *SCRAM, "OAUTHBEARER")


class ClusterSecurity:
    """Security of the listeners of a cluster; connections between its brokers don't have it.

    Args:
        users: Passwords by name. With users, or the mechanism OAUTHBEARER, clients must log in.
        mechanisms: Of SASL: PLAIN and both of SCRAM by default. OAUTHBEARER takes unsecured tokens,
            as Kafka does where nothing else is configured.
        signed_tokens: OAUTHBEARER takes those of ``token`` only, signed (RS256) by a key that is
            made for this value; that needs ``kclient[oauth]``.
        tls: Listeners speak TLS, by a certificate for loopback that is made for this value; that
            needs ``kclient[tls]``.
        client_certificates: With ``tls``, clients must have a certificate of the same authority,
            in place of a login; its common name is the user's.
        session_lifetime: Seconds after which clients must authenticate again (KIP-368).
        super_users: Names of users who may do everything. With them, even with none, the cluster
            has an authorizer: all other users may do what ACLs allow. ``"ANONYMOUS"`` is whoever
            doesn't log in.

    Raises:
        InvalidArgument: An argument is invalid; the text names it.

    Example::

        security = ClusterSecurity({"alice": "secret"}, tls=True)
        async with kclient.testing.Cluster(security=security) as cluster:
            async with kclient.Producer(cluster.bootstrap, security=security.client("alice")):
                ...
    """

    def __init__(
        self,
        users: Mapping[str, str | Secret] | None = None,
        *,
        mechanisms: Sequence[str] = ("PLAIN", *SCRAM),
        signed_tokens: bool = False,
        tls: bool = False,
        client_certificates: bool = False,
        session_lifetime: float | None = None,
        super_users: Sequence[str] | None = None,
    ) -> None:
        unknown = sorted(set(mechanisms) - set(MECHANISMS))
        if isinstance(mechanisms, str) or unknown:
            raise InvalidArgument(
                f"mechanisms={mechanisms!r}: allowed are {', '.join(MECHANISMS)}, in a sequence"
            )
        if session_lifetime is not None:
            seconds_of("session_lifetime", session_lifetime)
        try:
            self._passwords = {
                checked_name(name): checked_password(given) for name, given in (users or {}).items()
            }
        except InvalidConfig as error:
            raise InvalidArgument(f"users: {error.message}") from None
        self.authorizer = None if super_users is None else Authorizer(_names(super_users))
        self.mechanisms = tuple(mechanisms)
        if flag("signed_tokens", signed_tokens) and "OAUTHBEARER" not in mechanisms:
            raise InvalidArgument("signed_tokens=True needs the mechanism OAUTHBEARER")
        self._signer = TokenSigner(signed=signed_tokens)
        self.session_lifetime = math.inf if session_lifetime is None else session_lifetime
        if client_certificates and (self.wants_sasl or not tls):
            raise InvalidArgument(
                "client_certificates=True needs tls=True, and neither users nor OAUTHBEARER"
            )
        self.client_certificates = client_certificates
        self._certificate = ServerCertificate(wants_clients=client_certificates) if tls else None
        self._credentials: dict[tuple[str, str], ScramCredential] = {}
        self._revisions: Counter[str] = Counter()

    @property
    def wants_sasl(self) -> bool:
        """Clients must log in."""
        return bool(self._passwords) or "OAUTHBEARER" in self.mechanisms

    @property
    def server_context(self) -> ssl.SSLContext | None:
        """The brokers' context for TLS; None without TLS."""
        return self._certificate.context if self._certificate is not None else None

    @property
    def authority(self) -> str | None:
        """PEM of the authority that clients must trust; None without TLS."""
        return self._certificate.authority if self._certificate is not None else None

    @property
    def usernames(self) -> tuple[str, ...]:
        """The names of the users that have a password here."""
        return tuple(self._passwords)

    def client(self, username: str | None = None, mechanism: str | None = None) -> Security:
        """The ``Security`` of a client.

        Args:
            username: One of the users; any name where clients have certificates, or for tokens;
                None where neither is needed.
            mechanism: By default the first one with a password, or else OAUTHBEARER, which has a
                ``token`` made whenever the client needs one.

        Raises:
            InvalidArgument: There is no such user, or the cluster hasn't the mechanism.
        """
        tls: dict[str, Any] = {"unencrypted": True}
        if self._certificate is not None:
            tls = {"ca": self._certificate.authority}
        if username is None:
            if self.wants_sasl or self.client_certificates:
                raise InvalidArgument("username is needed: this cluster wants clients to log in")
            return Security.tls(**tls) if self._certificate is not None else Security.plaintext()
        if self._certificate is not None and self.client_certificates:
            certificate, key = self._certificate.of_client(username)
            return Security.tls(certificate=certificate, key=key, **tls)
        with_password = [one for one in self.mechanisms if one != "OAUTHBEARER"]
        chosen = mechanism or next(iter(with_password or self.mechanisms), None)
        if chosen not in self.mechanisms:
            raise InvalidArgument(
                f"mechanism={chosen!r}: allowed are {', '.join(self.mechanisms) or 'none'}"
            )
        if chosen == "OAUTHBEARER":
            return Security.oauth(self._source(username), **tls)
        if username not in self._passwords:
            raise InvalidArgument(
                f"username={username!r}: known are {', '.join(self._passwords) or 'none'}"
            )
        password = self._passwords[username]
        if chosen == "PLAIN":
            return Security.sasl_plain(username, password, **tls)
        return Security.sasl_scram(username, password, mechanism=cast("Any", chosen), **tls)

    def token(self, username: str, *, lifetime: float = 3600.0) -> Token:
        """A token for OAUTHBEARER that the cluster takes: a signed one, if it wants those.

        Args:
            username: Any name: the claim ``sub``.
            lifetime: Seconds until it expires, by the clock of the running loop.

        Raises:
            InvalidArgument: An argument is invalid.
        """
        try:
            checked_name(username)
        except InvalidConfig as error:
            raise InvalidArgument(error.message) from None
        now = wall_seconds()
        expires_at = now + seconds_of("lifetime", lifetime)
        return Token(self._signer.token({"sub": username, "iat": now, "exp": expires_at}))

    def _source(self, username: str) -> TokenSource:
        self.token(username)  # raises at once

        async def source() -> Token:
            return self.token(username)

        return source

    def claims(self, token: str) -> dict[str, Any]:
        """What a token of ``token`` says. Raises ValueError, KeyError or TypeError for others."""
        return self._signer.claims(token)

    def set_password(self, username: str, password: str | Secret | None) -> None:
        """Change a password, add a user, or remove one (None); sessions that are open go on.

        It replaces what requests (AlterUserScramCredentials) have done to that user.
        """
        try:
            checked_name(username)
            if password is None:
                self._passwords.pop(username, None)
            else:
                self._passwords[username] = checked_password(password)
        except InvalidConfig as error:
            raise InvalidArgument(error.message) from None
        self._revisions[username] += 1
        for mechanism in SCRAM:
            self._credentials.pop((username, mechanism), None)

    def rotate_certificate(self) -> None:
        """Have the brokers show a new certificate, by the same authority, to new connections.

        Raises:
            InvalidArgument: There is no TLS.
        """
        if self._certificate is None:
            raise InvalidArgument("there is no certificate: make security with tls=True")
        self._certificate.renew()

    def password(self, username: str) -> str | None:
        """The password of a user; None if there is none of that name."""
        found = self._passwords.get(username)
        return None if found is None else found.reveal()

    def revision(self, username: str) -> int:
        """How often ``set_password`` has changed that user."""
        return self._revisions[username]

    def credential(self, username: str, mechanism: str) -> ScramCredential | None:
        """What SCRAM keeps of it; None if there is none of that name."""
        password = self.password(username)
        if password is None:
            return None
        key = username, mechanism
        if key not in self._credentials:
            salt = hashlib.sha256(f"{mechanism}:{username}".encode()).digest()[:16]
            salted = hashlib.pbkdf2_hmac(SCRAM[mechanism], password.encode(), salt, ITERATIONS)
            self._credentials[key] = scram_credential(mechanism, salted, salt, ITERATIONS)
        return self._credentials[key]


def _names(super_users: Sequence[str]) -> Sequence[str]:
    if isinstance(super_users, str) or any(
        not isinstance(one, str) or not one or one.startswith("User:") for one in super_users
    ):
        raise InvalidArgument(
            f"super_users={super_users!r}: allowed are names, without 'User:', in a sequence"
        )
    return super_users
