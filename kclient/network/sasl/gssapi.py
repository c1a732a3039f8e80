"""GSSAPI (RFC 4752) with Kerberos: a ticket shows the broker who we are, and us the broker.

``begin`` asks the library of the system for the ticket, which may wait for a KDC; the rest of an
authentication is without I/O. There is never a security layer: TLS encrypts.

Tickets that are got by a keytab are kept in memory, for all clients of the process; the library
renews them after half of their life, when one is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gssapi import Credentials, MechType, Name, NameType, RequirementFlag, SecurityContext
from gssapi.raw.misc import GSSError

from kclient.errors import AuthenticationFailed

if TYPE_CHECKING:
    from kclient.credentials import Kerberos

_NO_LAYER = 1
"""The bit of a broker that does without a security layer."""
_CHOICE = bytes([_NO_LAYER, 0, 0, 0])
"""No layer, so no buffer for it, and no other name to act for."""
_KERBEROS_ERRORS = 2_529_638_912
"""Kerberos' error 0 (RFC 4120) in GSSAPI's minor codes; MIT's own follow from 128 on."""
_UNKNOWN_SERVICE, _NO_CREDENTIALS, _UNKNOWN_REALM = 7, 141, 154
_NO_KDC = (29, 155, 156)
"""It is out of service, its address can't be looked up, or it can't be reached."""
_ERRNOS = 4096
"""Minor codes below that are of the system: a name server that doesn't respond, for one."""
_CLOCK_SKEW = (37, 148)


def begin(kerberos: Kerberos, host: str) -> Gssapi:
    """Get a ticket for a broker; for a thread, as that may wait for a KDC.

    Args:
        kerberos: Whose ticket.
        host: The broker's name, as it is dialed: its principal has it.

    Raises:
        AuthenticationFailed: There is none: the text says why.
    """
    try:
        return _begun(kerberos, host)
    except NotImplementedError:
        raise AuthenticationFailed(
            "GSSAPI: the Kerberos library of this system takes no keytab",
            hint="get tickets with it by kinit -kt FILE PRINCIPAL, and leave out keytab=",
        ) from None
    except GSSError as error:
        if not kerberos.keytab or _code(error) != _NO_CREDENTIALS:
            raise _no_ticket(error, kerberos, host) from None
    # Another thread renewed the ticket: for a moment there was none.
    try:
        return _begun(kerberos, host)
    except GSSError as error:
        raise _no_ticket(error, kerberos, host) from None


def _begun(kerberos: Kerberos, host: str) -> Gssapi:
    name: Name | None = None
    store: dict[str | bytes, str | bytes] | None = None
    if kerberos.principal:
        name = Name(kerberos.principal, NameType.kerberos_principal)
    if kerberos.keytab:
        ours = f"MEMORY:kclient {kerberos.principal} {kerberos.keytab}"
        store = {"client_keytab": kerberos.keytab, "ccache": ours}
    mechanism = MechType.kerberos
    context = SecurityContext(
        name=Name(f"{kerberos.service_name}@{host}", NameType.hostbased_service),
        creds=Credentials(name=name, mechs=[mechanism], usage="initiate", store=store),
        mech=mechanism,
        flags=RequirementFlag.mutual_authentication,
        usage="initiate",
    )
    return Gssapi(context, context.step() or b"")


class Gssapi:
    """One authentication by GSSAPI; see ``Mechanism``.

    Args:
        context: Knows the broker's principal, and has begun.
        token: Its first.
    """

    name = "GSSAPI"
    slow = False

    def __init__(self, context: SecurityContext, token: bytes) -> None:
        self._context = context
        self._token = token
        self._chosen = False

    def step(self, challenge: bytes | None) -> bytes | None:
        """The tokens of both sides, then that there is no layer, then an empty answer."""
        if challenge is None:
            return self._token
        if self._chosen:
            if challenge:
                raise _untrusted("it goes on after the end")
            return None
        try:
            if not self._context.complete:
                return self._context.step(challenge) or b""
            return self._choose(self._context.unwrap(challenge).message)
        except GSSError as error:
            raise _untrusted(_text(error)) from None

    def _choose(self, offer: bytes) -> bytes:
        if len(offer) != len(_CHOICE):
            raise _untrusted(f"its offer of security layers has {len(offer)} bytes, not 4")
        if not offer[0] & _NO_LAYER:
            raise AuthenticationFailed(
                "GSSAPI: the broker insists on a security layer, which is not in this client",
                hint="have the broker offer the quality of protection `auth`; TLS encrypts",
            )
        self._chosen = True
        return self._context.wrap(_CHOICE, encrypt=False).message


def _no_ticket(error: GSSError, kerberos: Kerberos, host: str) -> AuthenticationFailed:
    code = _code(error)
    whose = ""
    if kerberos.principal:
        whose = f" for {kerberos.principal}"
    if kerberos.keytab:
        whose += f" by the keytab {kerberos.keytab}"
    service = f"{kerberos.service_name}@{host}"
    failed = AuthenticationFailed(f"GSSAPI: no ticket{whose} to {service}: {_text(error)}")
    failed.retriable = code in _NO_KDC or 0 < error.min_code < _ERRNOS
    if code == _UNKNOWN_SERVICE:
        failed.hint = (
            "check service_name, and that the KDC has a principal of the broker's advertised host "
            "name"
        )
    elif code in _CLOCK_SKEW:
        failed.hint = "set the clocks of this machine, the KDC and the brokers"
    elif failed.retriable or code == _UNKNOWN_REALM:
        failed.hint = "check krb5.conf, or the file that KRB5_CONFIG names, and the KDC itself"
    elif kerberos.keytab:
        failed.hint = "check that the keytab has the present key of that principal: klist -ket FILE"
    else:
        failed.hint = "run kinit, or give keytab="
    return failed


def _untrusted(why: str) -> AuthenticationFailed:
    return AuthenticationFailed(f"GSSAPI: the broker can't be trusted: {why}")


def _code(error: GSSError) -> int:
    return error.min_code - _KERBEROS_ERRORS


def _text(error: GSSError) -> str:
    """GSSAPI's own; the minor code's says more, where there is one."""
    is_major = not error.min_code
    return "; ".join(
        error.get_all_statuses(error.maj_code if is_major else error.min_code, is_major)
    )
