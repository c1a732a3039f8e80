"""Sources of tokens for ``Security.oauth``: token endpoints (OAuth 2, OpenID Connect), and files.

The login of a client calls them for a token, keeps that, and asks for the next one in time. None
belongs to a loop or a client: one value may serve several. ``kclient[oauth]`` brings what the first
two need.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack

from kclient.clock import wall_seconds
from kclient.credentials import Token, is_utf8, jwt_claims, seconds_in
from kclient.errors import AuthenticationFailed, InvalidArgument, InvalidConfig
from kclient.http import Endpoint, RequestFailed, Response
from kclient.secret import Secret

if TYPE_CHECKING:
    from kclient.tls import TlsOptions

Algorithm: TypeAlias = Literal["RS256", "PS256", "ES256"]

JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_ALGORITHMS = ("RS256", "PS256", "ES256")
_MAX_FILE = 1024 * 1024
_HINTS = {
    "invalid_client": "are client_id and client_secret right?",
    "invalid_grant": "does the server know the key, the issuer, the subject and the audience of "
    "the assertion, and is this machine's clock right?",
    "invalid_scope": "may this client have that scope?",
    "unauthorized_client": "may this client use that grant?",
}


class ClientCredentials:
    """Tokens for the id and secret of a client: OAuth's grant ``client_credentials``.

    The two are sent as HTTP's Basic authentication (RFC 6749, section 2.3.1). The URL's
    certificate is verified; redirects, and proxies of the environment, aren't followed.

    Args:
        token_url: The server's token endpoint: https, or http to this machine.
        client_id: Of the client, as registered there.
        client_secret: Its secret.
        scope: What the token is for, with blanks between several.
        audience: Whom it is for, where the server asks for that.
        extensions: Go to the broker beside the token, as of ``Token``.
        urlencode: Quote id and secret, as the RFC has it; False for a server that takes them as
            they are, which matters for other characters than letters, digits and ``-._~``.
        unencrypted: Allow http to other machines: anyone on the way can read secret and token.
        tls: As of ``Security.tls``, for the token endpoint.

    Raises:
        InvalidConfig: Something is missing or unusable, or ``kclient[oauth]`` isn't installed.

    Example::

        tokens = ClientCredentials("https://idp.example/token", "orders", Secret("..."))
        security = Security.oauth(tokens, ca_file="ca.pem")
    """

    def __init__(
        self,
        token_url: str,
        client_id: str,
        client_secret: str | Secret,
        *,
        scope: str | None = None,
        audience: str | None = None,
        extensions: Mapping[str, str] | None = None,
        urlencode: bool = True,
        unencrypted: bool = False,
        **tls: Unpack[TlsOptions],
    ) -> None:
        self._endpoint = Endpoint("token_url", token_url, unencrypted=unencrypted, tls=tls)
        self._client_id = _text("client_id", client_id)
        self._client_secret = _secret("client_secret", client_secret)
        self._urlencode = urlencode
        self._form = _form("client_credentials", scope=scope, audience=audience)
        self._extensions = _extensions(extensions)

    def __repr__(self) -> str:
        return f"ClientCredentials({self._endpoint.shown!r}, {self._client_id!r})"

    async def __call__(self) -> Token:
        """Fetch a token.

        Raises:
            AuthenticationFailed: There is none: the text says why, and ``retriable`` whether
                there may be one later.
        """
        basic = _basic(self._client_id, self._client_secret, urlencode=self._urlencode)
        return await _fetched(
            *(self._endpoint, self._form, {"Authorization": basic}, self._extensions),
            [self._client_secret, Secret(basic.reveal().removeprefix("Basic "))],
        )


class JwtBearer:
    """Tokens for a signed assertion: OAuth's grant ``jwt-bearer`` (RFC 7523).

    The assertion is made and signed for each token, or read from a file that another program keeps
    fresh.

    Args:
        token_url: As of ``ClientCredentials``.
        private_key_file: PEM file of the key that signs; read for each token.
        private_key: The same as PEM text.
        private_key_password: Of that key, if it is encrypted.
        key_id: Its name at the server, the assertion's ``kid``.
        algorithm: RS256 or PS256 for an RSA key, ES256 for one of the curve P-256.
        issuer: The assertion's ``iss``.
        subject: Its ``sub``; the issuer by default.
        audience: Its ``aud``: the server, often the token endpoint's URL.
        claims: Further ones.
        life: Seconds for which it is valid.
        assertion_file: File with the assertion, instead of all of these.
        scope: As of ``ClientCredentials``.
        extensions: As of ``ClientCredentials``.
        unencrypted: As of ``ClientCredentials``.
        tls: As of ``ClientCredentials``.

    Raises:
        InvalidConfig: Something is missing or unusable, or ``kclient[oauth]`` isn't installed.
    """

    def __init__(
        self,
        token_url: str,
        *,
        private_key_file: str | os.PathLike[str] | None = None,
        private_key: str | Secret | None = None,
        private_key_password: str | Secret | None = None,
        key_id: str | None = None,
        algorithm: Algorithm = "RS256",
        issuer: str | None = None,
        subject: str | None = None,
        audience: str | None = None,
        claims: Mapping[str, object] | None = None,
        life: float = 300.0,
        assertion_file: str | os.PathLike[str] | None = None,
        scope: str | None = None,
        extensions: Mapping[str, str] | None = None,
        unencrypted: bool = False,
        **tls: Unpack[TlsOptions],
    ) -> None:
        given = [one for one in (private_key_file, private_key, assertion_file) if one]
        if len(given) != 1:
            raise InvalidConfig("give one of private_key_file, private_key and assertion_file")
        if assertion_file and (key_id or issuer or subject or audience or claims):
            raise InvalidConfig("assertion_file has the whole assertion: leave out its parts")
        if algorithm not in _ALGORITHMS:
            raise InvalidConfig(
                f"algorithm={algorithm!r} can't be used: allowed are {', '.join(_ALGORITHMS)}"
            )
        if not isinstance(life, int | float) or not 1 <= life <= 86400:
            raise InvalidConfig(f"life={life!r} can't be used: allowed are 1 to 86,400 seconds")
        self._endpoint = Endpoint("token_url", token_url, unencrypted=unencrypted, tls=tls)
        self._file = os.fspath(private_key_file or assertion_file or "")
        self._key = _secret("private_key", private_key) if private_key else None
        self._password = Secret(private_key_password) if private_key_password else None
        self._header = {"alg": algorithm, **({"kid": key_id} if key_id else {})}
        self._claims: dict[str, object] | None = None
        if not assertion_file:
            fixed = {"iss": _text("issuer", issuer), "sub": _text("subject", subject or issuer)}
            self._claims = {**(claims or {}), **fixed, "aud": _text("audience", audience)}
        self._life = life
        self._form = _form(JWT_BEARER, scope=scope)
        self._extensions = _extensions(extensions)
        if self._key is not None:
            try:
                self._signed(0.0)
            except AuthenticationFailed as error:
                raise InvalidConfig(error.message, hint=error.hint) from None

    def __repr__(self) -> str:
        return f"JwtBearer({self._endpoint.shown!r})"

    async def __call__(self) -> Token:
        """Fetch a token.

        Raises:
            AuthenticationFailed: As of ``ClientCredentials``.
        """
        assertion = await asyncio.to_thread(self._signed, wall_seconds())
        form = self._form | {"assertion": assertion}
        return await _fetched(self._endpoint, form, {}, self._extensions, [])

    def _signed(self, now: float) -> Secret:
        """An assertion of this moment."""
        if self._claims is None:
            return _read(self._file, "assertion_file")
        import uuid

        claims = {"iat": int(now), "exp": int(now + self._life), "jti": str(uuid.uuid4())}
        key = self._key or _read(self._file, "private_key_file")
        return _signature(self._header, self._claims | claims, key, self._password)


class TokenFile:
    """Tokens that another program writes to a file, such as those of a Kubernetes service account.

    Args:
        path: The file; read whenever a client needs a token.
        extensions: Go to the broker beside the token, as of ``Token``.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, extensions: Mapping[str, str] | None = None
    ) -> None:
        self._path = _text("path", os.fspath(path))
        self._extensions = _extensions(extensions)

    def __repr__(self) -> str:
        return f"TokenFile({self._path!r})"

    def __call__(self) -> Token:
        """Read the token.

        Raises:
            AuthenticationFailed: It can't be read.
        """
        return Token(_read(self._path, "the token file"), extensions=self._extensions)


async def _fetched(
    endpoint: Endpoint,
    form: Mapping[str, str | Secret],
    headers: Mapping[str, str | Secret],
    extensions: Mapping[str, str],
    hidden: Sequence[Secret],
) -> Token:
    """Ask a token endpoint."""
    try:
        response = await endpoint.post(form, headers, hidden=hidden)
    except RequestFailed as error:
        raise _no_token(str(error), retriable=error.retriable) from None
    found = _outcome(endpoint, response, extensions)
    if isinstance(found, AuthenticationFailed):
        raise found  # here, where no local variable has a token
    return found


def _outcome(
    endpoint: Endpoint, response: Response, extensions: Mapping[str, str]
) -> Token | AuthenticationFailed:
    """The token of a response, or why there is none."""
    answer = _json(response)
    if response.status != 200:
        return _refused(endpoint, response, answer)
    hint = "is that the token endpoint?"
    if answer is None:  # which isn't shown, as it may be a token
        size = len(response.body)
        return _no_token(f"{endpoint.shown} gave {size:,} bytes, no JSON object", hint=hint)
    value = answer.get("access_token")
    if not isinstance(value, str) or not value:
        names = response.excerpt(", ".join(sorted(answer))) or "nothing"
        return _no_token(f"{endpoint.shown} gave no access_token, but {names}", hint=hint)
    # Valid for as long as both the response and the token itself say.
    life = seconds_in(answer.get("expires_in"))
    ends = [
        seconds_in(jwt_claims(value).get("exp")),
        None if life is None else wall_seconds() + life,
    ]
    try:
        expires_at = min((one for one in ends if one is not None), default=None)
        return Token(value, expires_at, extensions)
    except InvalidArgument as error:
        return _no_token(f"{endpoint.shown} gave what can't be sent: {error.message}")


def _refused(
    endpoint: Endpoint, response: Response, answer: Mapping[str, Any] | None
) -> AuthenticationFailed:
    """The error of a response that isn't 200 (RFC 6749, section 5.2)."""
    status, code = response.status, str((answer or {}).get("error", ""))
    parts = [code, str((answer or {}).get("error_description") or "")]
    said = response.excerpt(": ".join(one for one in parts if one))
    hint = _HINTS.get(code) or (_HINTS["invalid_client"] if status == 401 else None)
    return _no_token(
        f"{endpoint.shown} refuses ({status}): {said or response.excerpt() or 'without a word'}",
        retriable=status in (408, 425, 429) or status >= 500,
        hint=hint,
    )


def _no_token(
    message: str, *, retriable: bool = False, hint: str | None = None
) -> AuthenticationFailed:
    error = AuthenticationFailed(f"there is no token: {message}", hint=hint)
    error.retriable = retriable
    return error


def _json(response: Response) -> dict[str, Any] | None:
    try:
        found = json.loads(response.body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _basic(client_id: str, secret: Secret, *, urlencode: bool) -> Secret:
    quote = urllib.parse.quote_plus if urlencode else str
    both = f"{quote(client_id)}:{quote(secret.reveal())}"
    return Secret("Basic " + base64.b64encode(both.encode()).decode())


def _signature(
    header: dict[str, str], claims: dict[str, object], key: Secret, password: Secret | None
) -> Secret:
    """A signed JWT."""
    from joserfc import jwk, jwt

    try:
        kind: Any = jwk.ECKey if header["alg"].startswith("E") else jwk.RSAKey
        found = kind.import_key(key.reveal(), password=password.reveal() if password else None)
        return Secret(jwt.encode(header, claims, found, algorithms=[header["alg"]]))
    except Exception as error:  # also of cryptography
        why = type(error).__name__
    raise _no_token(
        f"the private key can't be used for {header['alg']}: {why}",
        hint="it is to be PEM, of that algorithm, and private_key_password its password",
    )


def _read(path: str, name: str) -> Secret:
    """The text of a file with a secret."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_MAX_FILE).strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it isn't text"
    else:
        if text:
            return Secret(text)
        why = "it is empty"
    raise _no_token(f"{name} {path} can't be read: {why}", retriable=True)


def _form(grant: str, **fields: str | None) -> dict[str, str | Secret]:
    given = {name: _text(name, value) for name, value in fields.items() if value is not None}
    return {"grant_type": grant, **given}


def _extensions(given: Mapping[str, str] | None) -> dict[str, str]:
    """Checked as those of a token."""
    try:
        return dict(Token("checked", 0.0, given or {}).extensions)
    except InvalidArgument as error:
        raise InvalidConfig(error.message) from None


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise InvalidConfig(f"{name}={value!r} can't be used: allowed is text")
    return value


def _secret(name: str, value: object) -> Secret:
    if not isinstance(value, str | Secret) or not value:
        raise InvalidConfig(f"{name} is missing: allowed are a str and a Secret")
    secret = Secret(value)
    if not is_utf8(secret.reveal()):
        raise InvalidConfig(f"{name} has characters that aren't Unicode")
    return secret
