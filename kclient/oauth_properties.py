"""OAUTHBEARER of properties files, made a source of tokens.

``security_properties`` calls it. Classes that a file names are known ones or refused: none is
loaded. A file never makes a client send another file's content: see ``TokenFile`` for that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kclient.credentials import seconds_in
from kclient.errors import InvalidArgument, InvalidConfig
from kclient.jaas import parse_jaas
from kclient.oidc import JWT_BEARER, ClientCredentials, JwtBearer

if TYPE_CHECKING:
    from kclient.credentials import TokenSource

OAUTH_CHECKED = ("https_ca_location", "https_ca_pem")
"""Names beside those that begin with ``sasl``."""

_OAUTH = "org.apache.kafka.common.security.oauthbearer."
_MODULE = _OAUTH + "OAuthBearerLoginModule"
_CLASSES = {
    "sasl_login_callback_handler_class": (
        _OAUTH + "OAuthBearerLoginCallbackHandler",
        _OAUTH + "secured.OAuthBearerLoginCallbackHandler",
    ),
    "sasl_oauthbearer_jwt_retriever_class": (
        _OAUTH + "DefaultJwtRetriever",
        _OAUTH + "ClientCredentialsJwtRetriever",
        _OAUTH + "JwtBearerJwtRetriever",
    ),
}
_UNUSED = re.compile(
    "sasl_login_(connect|read|refresh|retry)_.*|sasl_oauthbearer_(jwks_.*|expected_.*|clock_skew_.*"
    "|scope_claim_name|sub_claim_name|jwt_validator_class"
    "|assertion_claim_(jti_include|nbf_seconds))"
)
_CREDENTIALS = {
    "client_id": (
        *("sasl_oauthbearer_client_credentials_client_id", "sasl_oauthbearer_client_id"),
        "clientId",
    ),
    "client_secret": (
        *("sasl_oauthbearer_client_credentials_client_secret", "sasl_oauthbearer_client_secret"),
        "clientSecret",
    ),
}
_COMMON = {
    "scope": ("sasl_oauthbearer_scope", "scope"),
    "ca_file": ("https_ca_location",),
    "ca": ("https_ca_pem",),
}
_ASSERTION = {
    "private_key_file": ("sasl_oauthbearer_assertion_private_key_file",),
    "private_key": ("sasl_oauthbearer_assertion_private_key_pem",),
    "private_key_password": ("sasl_oauthbearer_assertion_private_key_passphrase",),
    "algorithm": ("sasl_oauthbearer_assertion_algorithm",),
    "issuer": ("sasl_oauthbearer_assertion_claim_iss",),
    "subject": ("sasl_oauthbearer_assertion_claim_sub",),
    "audience": ("sasl_oauthbearer_assertion_claim_aud",),
    "life": ("sasl_oauthbearer_assertion_claim_exp_seconds",),
}
"""Arguments of the sources, and the properties and options of JAAS that give them."""
_READ = {
    *("sasl_mechanism", "sasl_mechanisms", "sasl_jaas_config", "sasl_oauthbearer_method"),
    *("sasl_oauthbearer_extensions", "sasl_oauthbearer_grant_type", *_CLASSES),
    *("sasl_oauthbearer_token_endpoint_url", "sasl_oauthbearer_header_urlencode"),
}
_ONE_OF = {
    "sasl_oauthbearer_method": ("oidc",),
    "sasl_oauthbearer_grant_type": ("client_credentials", JWT_BEARER),
    "sasl_oauthbearer_header_urlencode": ("true", "false"),
}
_TOKEN_FILE = "for a file with a token give security=Security.oauth(kclient.TokenFile(path))"


def oauth_source(
    values: Mapping[str, str], names: Mapping[str, str], unused: dict[str, str]
) -> TokenSource:
    """Return the source of tokens that the properties ask for.

    Args:
        values: The properties, by normalised names.
        names: The names as they were given.
        unused: Gets the names of those without meaning, and why.

    Raises:
        InvalidConfig: Something is missing, or can't be honoured.
    """
    module, options = _MODULE, dict[str, str]()
    if values.get("sasl_jaas_config"):
        module, options = parse_jaas(values["sasl_jaas_config"])
    if module != _MODULE:
        raise InvalidConfig(
            f"sasl.jaas.config: {module} isn't of sasl.mechanism=OAUTHBEARER: allowed is {_MODULE}"
        )
    for key, classes in _CLASSES.items():
        if values.get(key) and values[key] not in classes:
            hint = "give security=Security.oauth(token), a function"
            if values[key] == _OAUTH + "FileJwtRetriever":
                hint = _TOKEN_FILE
            elif values[key].startswith("software.amazon.msk."):
                hint = "sasl.mechanism=AWS_MSK_IAM with IAMLoginModule, or Security.msk_iam(region)"
            raise InvalidConfig(
                f"{names[key]}={values[key]} can't be honoured: allowed are {', '.join(classes)}",
                hint=hint,
            )
    table = _COMMON | (_ASSERTION if _signs(values) else _CREDENTIALS)
    known = {key for keys in table.values() for key in keys}
    for key, name in names.items():
        if key.startswith("sasl_kerberos_"):
            unused[name] = "sasl.mechanism is OAUTHBEARER"
        elif _UNUSED.fullmatch(key):
            unused[name] = "tokens are fetched in time, and brokers verify them"
        elif key.startswith(("sasl_", "enable_sasl_")) and key not in known | _READ:
            if values[key] and values[key].lower() != "false":
                raise InvalidConfig(f"{name} can't be honoured", hint="give security=Security....")
    _check_options(options, {key for key in known if "_" not in key}, "extension_")
    return _endpoint(values, options, table)


def _signs(values: Mapping[str, str]) -> bool:
    """Tokens are for an assertion, not for a secret."""
    retriever = values.get("sasl_oauthbearer_jwt_retriever_class", "")
    grant = values.get("sasl_oauthbearer_grant_type", "").lower()
    return grant == JWT_BEARER or retriever.endswith(".JwtBearerJwtRetriever")


def _endpoint(
    values: Mapping[str, str], options: Mapping[str, str], table: Mapping[str, tuple[str, ...]]
) -> TokenSource:
    """The source of an endpoint's tokens, with the arguments of ``table``."""
    url = values.get("sasl_oauthbearer_token_endpoint_url", "")
    if not url:
        raise InvalidConfig(
            "sasl.mechanism=OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url",
            hint="without a token endpoint give security=Security.oauth(token), a function",
        )
    if url.lower().startswith("file:"):
        raise InvalidConfig(
            "sasl.oauthbearer.token.endpoint.url is a file, which would be sent to brokers",
            hint=_TOKEN_FILE,
        )
    for key, allowed in _ONE_OF.items():
        if values.get(key, "").lower() not in ("", *allowed):
            raise InvalidConfig(
                f"{key.replace('_', '.')}={values[key]} can't be honoured: allowed are "
                f"{', '.join(allowed)}",
                hint="give security=Security.oauth(token), a function",
            )
    arguments: dict[str, Any] = {"extensions": _extensions(values, options)}
    for argument, keys in table.items():
        found = {one for key in keys if (one := values.get(key) or options.get(key))}
        if len(found) > 1:
            raise InvalidConfig(f"{' and '.join(keys)} say the same: take one out")
        if found and (argument != "ca_file" or found != {"probe"}):
            arguments[argument] = found.pop()
    for argument in ("client_id", "client_secret"):
        if argument in table and argument not in arguments:
            raise InvalidConfig(
                f"sasl.mechanism=OAUTHBEARER needs sasl.oauthbearer.client.credentials."
                f"{argument.replace('_', '.')}, or {table[argument][-1]} in sasl.jaas.config"
            )
    if "client_id" in table:
        urlencode = values.get("sasl_oauthbearer_header_urlencode", "").lower() == "true"
        arguments["urlencode"] = urlencode  # by default Java's and librdkafka's clients don't
    if "life" in arguments:
        arguments["life"] = seconds_in(arguments["life"])
    make: Callable[..., TokenSource] = ClientCredentials if "client_id" in table else JwtBearer
    try:
        return make(url, **arguments)
    except (InvalidConfig, InvalidArgument) as error:
        raise InvalidConfig(
            f"sasl.oauthbearer.* can't be used: {error.message}", hint=error.hint
        ) from error.__cause__


def _extensions(values: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    """As librdkafka has them, ``a=b,c=d``, and as options of JAAS."""
    listed = values.get("sasl_oauthbearer_extensions", "")
    pairs = [one.partition("=") for one in listed.split(",") if one.strip()]
    of_jaas = {
        name.removeprefix("extension_"): value
        for name, value in options.items()
        if name.startswith("extension_")
    }
    return {name.strip(): value.strip() for name, _, value in pairs} | of_jaas


def _check_options(options: Mapping[str, str], known: set[str], prefix: str = "") -> None:
    unknown = [one for one in options if one not in known]
    if [one for one in unknown if not prefix or not one.startswith(prefix)]:
        raise InvalidConfig(
            f"sasl.jaas.config has options that can't be honoured: allowed are "
            f"{', '.join(sorted(known))}" + (f" and {prefix}..." if prefix else "")
        )
