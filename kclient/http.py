"""HTTP to servers that settings name, such as those of tokens.

An ``Endpoint`` is one URL, checked when it is made, and its requests go nowhere else: no redirect
is followed, and no proxy of the environment is used. A response has at most 1 MiB and 10 s; the
caller decodes it. Texts from it have no secrets. Needs aiohttp.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import re
import ssl
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kclient.errors import InvalidConfig
from kclient.frozen import Frozen, frozen
from kclient.secret import Secret
from kclient.security import Security

if TYPE_CHECKING:
    from kclient.tls import TlsOptions

MAX_BODY = 1024 * 1024
"""Bytes of a response."""
PATIENCE = 10.0
"""Seconds for a request."""
MAX_SHOWN = 512
"""Characters of a response that a text may have."""

_PART = r"[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2}"
_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])"
    rf"(?::(?P<port>[1-9][0-9]{{0,4}}))?(?:/(?:{_PART})*)?"
)
_JWT = re.compile(r"eyJ[A-Za-z0-9_-]*\.[A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]*)*")
_HIDDEN = "<secret>"


class RequestFailed(Exception):
    """There is no response. The text is for users.

    Attributes:
        retriable: There may be one later.
    """

    def __init__(self, message: str, *, retriable: bool) -> None:
        super().__init__(message)
        self.retriable = retriable


@frozen
class Response(Frozen):
    """A response.

    Attributes:
        status: Its code.
        body: All of it.
        hidden: What was sent and must not be shown.
    """

    status: int
    body: bytes = dataclasses.field(repr=False)
    hidden: tuple[Secret, ...]

    def excerpt(self, text: str | None = None) -> str:
        """The begin of the body, or of a part of it, without line breaks and secrets."""
        shown = self.body.decode("utf-8", "replace") if text is None else text
        for one in self.hidden:
            secret = one.reveal()
            quoted = urllib.parse.quote(secret, ""), urllib.parse.quote_plus(secret)
            for form in (secret, *quoted, json.dumps(secret)[1:-1]):
                shown = shown.replace(form, _HIDDEN)
        shown = _JWT.sub(_HIDDEN, shown)
        return " ".join("".join(c if c.isprintable() else " " for c in shown).split())[:MAX_SHOWN]


class Endpoint:
    """A URL to which requests are sent.

    Args:
        name: Of the setting, for errors.
        url: https, or http to this machine; without name and password.
        unencrypted: http is allowed to other machines, too.
        tls: As of ``Security.tls``, for https.

    Raises:
        InvalidConfig: The URL can't be used, or aiohttp isn't installed.
    """

    def __init__(self, name: str, url: str, *, unencrypted: bool, tls: TlsOptions) -> None:
        found = _URL.fullmatch(url) if isinstance(url, str) else None
        if found is None or int(found["port"] or 0) > 65535:
            raise InvalidConfig(  # without the URL, which may have a password
                f"{name} can't be used: allowed is https://HOST[:PORT]/PATH, without user, "
                "fragment, blanks and characters beyond ASCII"
            )
        if found["scheme"] == "http" and not (unencrypted or _is_loopback(found["host"])):
            raise InvalidConfig(
                f"{name} can't be used without encryption: allowed is http to localhost, 127.0.0.1 "
                "and [::1]",
                hint="use https",
            )
        if found["scheme"] == "http" and any(tls.values()):
            raise InvalidConfig(f"{name} is http, which has no TLS: leave out {', '.join(tls)}")
        try:
            import aiohttp  # noqa: F401 - here, as importing it takes long
        except ImportError as error:
            raise InvalidConfig(
                f"{name} needs packages more: pip install 'kclient[oauth]'"
            ) from error
        self._url = url
        self.shown = url.partition("?")[0]
        """The URL, for texts."""
        self._security = Security.tls(**tls) if found["scheme"] == "https" else None

    def __repr__(self) -> str:
        return f"Endpoint({self.shown!r})"

    async def post(
        self,
        form: Mapping[str, str | Secret],
        headers: Mapping[str, str | Secret],
        *,
        hidden: Sequence[Secret] = (),
    ) -> Response:
        """Send a form, and return the response, whatever its status.

        Args:
            form: Its fields.
            headers: Beside those of HTTP.
            hidden: What texts must not show, beside the Secrets in the two.

        Raises:
            RequestFailed: There is none, it is too large, or it is a redirect.
        """
        import aiohttp

        try:
            status, body = await self._exchange(form, headers)
        except (aiohttp.ClientError, OSError) as error:
            failure = self._failure(error)
        else:
            sent = (*form.values(), *headers.values(), *hidden)
            return self._response(status, body, sent)
        # Raised here, without context: local variables of aiohttp's have all that is sent.
        raise failure

    def _failure(self, error: Exception) -> RequestFailed:
        import aiohttp

        if isinstance(error, TimeoutError):
            why = f"gave no response in {PATIENCE:g} s"
        elif isinstance(error, aiohttp.ClientConnectorCertificateError):
            trust = f"{self.shown} isn't trusted: {error.certificate_error}"
            return RequestFailed(trust, retriable=False)
        elif isinstance(error, aiohttp.ClientResponseError):
            # Whose text has what the server sent, and the whole URL.
            return RequestFailed(f"{self.shown} gave what isn't HTTP", retriable=False)
        else:
            why = f"can't be reached: {getattr(error, 'os_error', None) or type(error).__name__}"
        return RequestFailed(f"{self.shown} {why}", retriable=True)

    async def _exchange(
        self, form: Mapping[str, str | Secret], headers: Mapping[str, str | Secret]
    ) -> tuple[int, bytes]:
        """Status and body, of which there is a byte too many where it is too large."""
        import aiohttp
        import yarl

        context: ssl.SSLContext | None = self._security.ssl_context if self._security else None
        sent = {
            "Accept": "application/json",
            "Accept-Encoding": "identity",
        }
        async with (
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=context or True, force_close=True),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=PATIENCE),
                auto_decompress=False,
                trust_env=False,
            ) as session,
            session.post(
                yarl.URL(self._url, encoded=True),
                data=_revealed(form),
                headers=sent | _revealed(headers),
                allow_redirects=False,
            ) as response,
        ):
            body = bytearray()
            async for chunk in response.content.iter_chunked(65536):
                body += chunk
                if len(body) > MAX_BODY:
                    break
            return response.status, bytes(body)

    def _response(self, status: int, body: bytes, sent: Sequence[str | Secret]) -> Response:
        if 300 <= status < 400:
            raise RequestFailed(
                f"{self.shown} redirects ({status}), which isn't followed: give the URL itself",
                retriable=False,
            )
        if len(body) > MAX_BODY:
            raise RequestFailed(f"{self.shown} gave more than {MAX_BODY:,} bytes", retriable=False)
        return Response(status, body, tuple(one for one in sent if isinstance(one, Secret) and one))


def _revealed(given: Mapping[str, str | Secret]) -> dict[str, str]:
    return {
        name: value.reveal() if isinstance(value, Secret) else value
        for name, value in given.items()
    }


def _is_loopback(host: str) -> bool:
    """By its plain form only: other forms of addresses are read in more than one way."""
    try:
        return host in ("localhost", "[::1]") or ipaddress.IPv4Address(host).is_loopback
    except ValueError:
        return False
