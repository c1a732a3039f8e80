"""``security.protocol``, ``ssl.*`` and ``sasl.*`` of properties files, made a ``Security``.

``properties`` calls it. Stores are PEM, in files or in the values themselves, or PKCS#12. What
would make the connection less secure than the file says, or can't be honoured, is refused. No error
has a value that may be a secret.
"""

from __future__ import annotations

import dataclasses
import re
import ssl
from collections.abc import Mapping
from typing import Any, NoReturn

from kclient.credentials import SCRAM
from kclient.errors import InvalidConfig
from kclient.foreign_settings import normalised
from kclient.jaas import KNOWN, parse_jaas
from kclient.oauth_properties import OAUTH_CHECKED, oauth_source
from kclient.security import Security
from kclient.tls import TlsContext

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_OPT_IN = "kclient_allow_unencrypted_passwords"
_OPT_OUT = "kclient_allow_unverified_hostnames"
_MECHANISMS = ("PLAIN", *SCRAM, "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM")
_OF_JAVA = {
    *("ssl_keymanager_algorithm", "ssl_keystore_type", "ssl_protocol", "ssl_provider"),
    *("ssl_secure_random_implementation", "ssl_trustmanager_algorithm", "ssl_truststore_type"),
}
"""What has no meaning for Python's ssl module, and weakens nothing: stores show what they are."""
_ONE_OF: dict[str, tuple[str, ...]] = {
    "ca_file": ("ssl_ca_location", "ssl_truststore_location"),
    "ca": ("ssl_truststore_certificates", "ssl_ca_pem"),
    "ca_password": ("ssl_truststore_password",),
    "certificate_file": ("ssl_certificate_location", "ssl_keystore_location"),
    "certificate": ("ssl_keystore_certificate_chain", "ssl_certificate_pem"),
    "key_file": ("ssl_key_location",),
    "key": ("ssl_keystore_key", "ssl_key_pem"),
    "key_password": ("ssl_key_password", "ssl_keystore_password"),
}
"""Arguments of ``Security.tls``, and the properties that give them."""
_CHECKED = {
    *("security_protocol", "enable_ssl_certificate_verification", "ssl_enabled_protocols"),
    *("ssl_endpoint_identification_algorithm", _OPT_IN, _OPT_OUT, *OAUTH_CHECKED),
    *(name for names in _ONE_OF.values() for name in names),
}
_OF_SASL = {
    *("sasl_mechanism", "sasl_mechanisms", "sasl_jaas_config", "sasl_username", "sasl_password"),
}
_OF_OTHER_MECHANISMS = ("sasl_kerberos_", "sasl_oauthbearer_", "sasl_login_", "enable_sasl_")
_PEM = re.compile(r"(-----BEGIN [^-]+-----)\s+([a-zA-Z0-9+/=\s]+)(-----END [^-]+-----)")
_PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
_KERBEROS_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
_IAM_MODULE = "software.amazon.msk.auth.iam.IAMLoginModule"
_IAM_HANDLER = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
_MODULES = {
    _PLAIN_MODULE: ("PLAIN",),
    _SCRAM_MODULE: tuple(SCRAM),
    _KERBEROS_MODULE: ("GSSAPI",),
    _IAM_MODULE: ("AWS_MSK_IAM",),
}
_OF_KERBEROS = {f"sasl_kerberos_{name}" for name in ("principal", "keytab", "service_name")}
_OF_KERBEROS_MODULE = ("useKeyTab", "keyTab", "principal", "useTicketCache", "serviceName")
_OF_IAM_MODULE = ("awsProfileName", "awsRoleArn")
_MSK_HOST = re.compile(r"[.]kafka(?:-serverless)?[.]([a-z0-9-]+)[.]amazonaws[.]com\b")
_IN_JAVA_ONLY = {
    *("debug", "doNotPrompt", "isInitiator", "refreshKrb5Config", "renewTGT", "storeKey"),
    "awsDebugCreds",
}
"""Options of Java's modules that choose no credentials."""


def is_of_security(key: str) -> bool:
    """Whether a name, in the form of ``foreign_settings.normalised``, is dealt with here."""
    return key in _CHECKED or key.startswith(("ssl_", "sasl_", "enable_sasl_", "https_ca_"))


def security_from(
    given: Mapping[str, str], unused: dict[str, str], bootstrap: str = ""
) -> Security | None:
    """Return the security that the properties ask for; None if they don't say.

    Args:
        given: The properties of which ``is_of_security`` is true.
        unused: Gets the names of those without meaning, and why.
        bootstrap: Addresses of brokers, if they are known: those of Amazon MSK have a region.

    Raises:
        InvalidConfig: It can't be honoured, or a file can't be used.
    """
    values = {normalised(name): value for name, value in given.items()}
    names = {normalised(name): name for name in given}
    protocol = values.get("security_protocol", "").upper()
    if protocol not in ("", *_PROTOCOLS):
        _refuse("security.protocol", protocol, f"allowed are {', '.join(_PROTOCOLS)}")
    others = [name for name in given if normalised(name) != "security_protocol"]
    if not protocol:
        if any(values[normalised(name)] for name in others):
            raise InvalidConfig(
                f"security.protocol is missing beside {', '.join(sorted(others))}",
                hint="SASL_SSL or SSL uses them; PLAINTEXT encrypts nothing",
            )
        return None
    for key, name in names.items():
        of_sasl = key.startswith(("sasl_", "enable_sasl_"))
        if of_sasl and not protocol.startswith("SASL_"):
            unused[name] = f"security.protocol is {protocol}"
        elif key.startswith(("ssl_", "enable_ssl_")) and not protocol.endswith("SSL"):
            unused[name] = f"security.protocol is {protocol}"
        elif key.startswith("https_ca_") and _mechanism(values) != "OAUTHBEARER":
            unused[name] = "no token is fetched"
    security = Security.plaintext()
    if protocol.endswith("SSL"):
        security = _tls(given, values, unused)
    if protocol.startswith("SASL_"):
        unencrypted = protocol == "SASL_PLAINTEXT"
        login = _sasl(names, values, unused, bootstrap, unencrypted=unencrypted)
        security = Security(security.tls_context, login.sasl)
    if values.get("ssl_enabled_protocols") and security.tls_context is not None:
        return _of_versions(security, values["ssl_enabled_protocols"])
    return security


def _refuse(name: str, value: str, why: str) -> NoReturn:
    raise InvalidConfig(f"{name}={value} can't be used: {why}")


def _check_verification(values: Mapping[str, str]) -> bool:
    """Whether host names are not to be verified, which takes an opt-in; certificates always are."""
    verify = values.get("enable_ssl_certificate_verification", "true")
    if verify.lower() != "true":
        _refuse(
            "enable.ssl.certificate.verification",
            repr(verify),
            "certificates are always verified; allowed is true",
        )
    how = values.get("ssl_endpoint_identification_algorithm", "https")
    if how.lower() == "https":
        return False
    if how.lower() in ("", "none") and values.get(_OPT_OUT, "").lower() == "true":
        return True
    raise InvalidConfig(
        f"ssl.endpoint.identification.algorithm={how!r} can't be used: host names are verified; "
        "allowed is https",
        hint="give brokers certificates with their names; until then allow it: "
        "kclient.allow.unverified.hostnames=true",
    )


def _tls(given: Mapping[str, str], values: Mapping[str, str], unused: dict[str, str]) -> Security:
    for name in given:
        key = normalised(name)
        if key in _OF_JAVA:
            unused[name] = "TLS is Python's ssl module, which finds out what a store is"
        elif key.startswith("ssl_") and key not in _CHECKED and values[key]:
            raise InvalidConfig(
                f"{name} can't be honoured",
                hint="leave out all ssl.*, and give security=Security.tls(ssl_context=...)",
            )
    found: dict[str, Any] = {"insecure_skip_hostname": _check_verification(values)}
    for argument, keys in _ONE_OF.items():
        for key in keys:
            if values.get(key) and not (key == "ssl_ca_location" and values[key] == "probe"):
                found.setdefault(argument, _PEM.sub(_in_lines, values[key]))
    # Passwords of stores that aren't there.
    if not {"certificate", "certificate_file"} & set(found):
        found.pop("key_password", None)
    if "ca_file" not in found:
        found.pop("ca_password", None)
    try:
        return Security.tls(**found)
    except InvalidConfig as error:
        raise InvalidConfig(
            f"ssl.* can't be used: {error.message}", hint=error.hint
        ) from error.__cause__


def _in_lines(pem: re.Match[str]) -> str:
    """PEM as OpenSSL reads it: Java's clients take it in one line, too, as files continue lines."""
    body = re.findall(".{1,64}", "".join(pem[2].split()))
    return "\n".join((pem[1], *body, pem[3], ""))


def _sasl(
    names: Mapping[str, str],
    values: Mapping[str, str],
    unused: dict[str, str],
    bootstrap: str,
    *,
    unencrypted: bool,
) -> Security:
    """The login; ``unencrypted`` says that the protocol has no TLS for it."""
    mechanism = _mechanism(values)
    if mechanism not in _MECHANISMS:
        raise InvalidConfig(
            f"sasl.mechanism={mechanism} isn't in this release: allowed are "
            f"{', '.join(_MECHANISMS)}"
        )
    if mechanism == "OAUTHBEARER":
        return _tokens(names, values, unused, unencrypted=unencrypted)
    for key, name in names.items():
        if mechanism == "GSSAPI" and key.startswith("sasl_kerberos_"):
            if key not in _OF_KERBEROS:
                unused[name] = "the Kerberos library renews tickets"
        elif key.startswith(_OF_OTHER_MECHANISMS):
            unused[name] = f"sasl.mechanism is {mechanism}"
        elif mechanism == "AWS_MSK_IAM" and values[key] == _IAM_HANDLER:
            continue
        elif key.startswith("sasl_") and key not in _OF_SASL and values[key]:
            raise InvalidConfig(f"{name} can't be honoured", hint="give security=Security....")
    if mechanism == "GSSAPI":
        return _kerberos(values)
    if mechanism == "AWS_MSK_IAM":
        return _msk_iam(values, bootstrap, unencrypted=unencrypted)
    username, password = values.get("sasl_username"), values.get("sasl_password")
    token = False
    if values.get("sasl_jaas_config"):
        if username or password:
            raise InvalidConfig("sasl.jaas.config and sasl.username say the same: take one out")
        username, password, token = _login_module(values["sasl_jaas_config"], mechanism)
    for name, value in (("username", username), ("password", password)):
        if not value:
            raise InvalidConfig(
                f"security.protocol with SASL needs the {name}: sasl.jaas.config or sasl.{name}"
            )
    if mechanism == "PLAIN":
        if unencrypted and values.get(_OPT_IN, "").lower() != "true":
            raise InvalidConfig(
                "security.protocol=SASL_PLAINTEXT with sasl.mechanism=PLAIN would send the "
                "password unencrypted",
                hint="use SASL_SSL or SCRAM, or allow it: kclient.allow.unencrypted.passwords=true",
            )
        return Security.sasl_plain(username, password, unencrypted=True)
    return Security.sasl_scram(
        username,
        password,
        mechanism=mechanism,  # type: ignore[arg-type]
        delegation_token=token,
        unencrypted=True,
    )


def _mechanism(values: Mapping[str, str]) -> str:
    return (values.get("sasl_mechanism") or values.get("sasl_mechanisms") or "GSSAPI").upper()


def _tokens(
    names: Mapping[str, str],
    values: Mapping[str, str],
    unused: dict[str, str],
    *,
    unencrypted: bool,
) -> Security:
    """The login by tokens of an identity provider."""
    if unencrypted and values.get(_OPT_IN, "").lower() != "true":
        raise InvalidConfig(
            "security.protocol=SASL_PLAINTEXT with sasl.mechanism=OAUTHBEARER would send the "
            "token unencrypted",
            hint="use SASL_SSL, or allow it: kclient.allow.unencrypted.passwords=true",
        )
    return Security.oauth(oauth_source(values, names, unused), unencrypted=True)


def _kerberos(values: Mapping[str, str]) -> Security:
    """The login by a ticket, of librdkafka's properties or Java's module."""
    if values.get("sasl_username") or values.get("sasl_password"):
        raise InvalidConfig(
            "sasl.mechanism is GSSAPI, by default or by name, which has no sasl.username",
            hint="sasl.mechanism=PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512 has",
        )
    principal, keytab = values.get("sasl_kerberos_principal"), values.get("sasl_kerberos_keytab")
    service = values.get("sasl_kerberos_service_name")
    if values.get("sasl_jaas_config"):
        if principal or keytab:
            raise InvalidConfig(
                "sasl.jaas.config and sasl.kerberos.principal say the same: take one out"
            )
        options = _options_of(values["sasl_jaas_config"], "GSSAPI", _OF_KERBEROS_MODULE)
        by_keytab = options.get("useKeyTab", "").lower() == "true"
        if not by_keytab and options.get("useTicketCache", "").lower() != "true":
            raise InvalidConfig("sasl.jaas.config needs useKeyTab=true or useTicketCache=true")
        if by_keytab and not options.get("keyTab"):
            raise InvalidConfig("sasl.jaas.config has useKeyTab=true, which needs keyTab")
        principal = options.get("principal")
        keytab = options["keyTab"] if by_keytab else None
        service = service or options.get("serviceName")
    return Security.gssapi(
        principal=principal or None,
        keytab=keytab or None,
        service_name=service or "kafka",
        unencrypted=True,
    )


def _msk_iam(values: Mapping[str, str], bootstrap: str, *, unencrypted: bool) -> Security:
    """The login by AWS's identities."""
    if unencrypted:
        raise InvalidConfig("sasl.mechanism=AWS_MSK_IAM needs security.protocol=SASL_SSL")
    options: Mapping[str, str] = {}
    if values.get("sasl_jaas_config"):
        options = _options_of(values["sasl_jaas_config"], "AWS_MSK_IAM", _OF_IAM_MODULE)
    found = _MSK_HOST.search(bootstrap.lower())
    return Security.msk_iam(
        found[1] if found else None,
        profile=options.get("awsProfileName"),
        role_arn=options.get("awsRoleArn"),
    )


def _login_module(text: str, mechanism: str) -> tuple[str | None, str | None, bool]:
    """Name, password and whether they are those of a delegation token."""
    options = _options_of(text, mechanism, KNOWN)
    token = options.get("tokenauth", "false").lower() == "true"
    return options.get("username"), options.get("password"), token


def _options_of(text: str, mechanism: str, allowed: tuple[str, ...]) -> dict[str, str]:
    """The options of a login module of that mechanism."""
    module, options = parse_jaas(text)
    if module not in _MODULES:
        raise InvalidConfig(
            f"sasl.jaas.config: {module} isn't in this release: allowed are {', '.join(_MODULES)}"
        )
    if mechanism not in _MODULES[module]:
        raise InvalidConfig(
            f"sasl.jaas.config has {module}, which isn't of sasl.mechanism={mechanism}"
        )
    if set(options) - {*allowed, *_IN_JAVA_ONLY}:
        raise InvalidConfig(
            f"sasl.jaas.config has options that can't be honoured: allowed are {', '.join(allowed)}"
        )
    return options


def _of_versions(security: Security, said: str) -> Security:
    """Speak no version of TLS that isn't listed."""
    versions = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
    listed = {part.strip() for part in said.split(",")}
    wanted = [version for name, version in versions.items() if name in listed]
    if not wanted:
        _refuse("ssl.enabled.protocols", said, "allowed are TLSv1.2 and TLSv1.3")
    assert isinstance(security.tls_context, TlsContext)
    settings = dataclasses.replace(
        security.tls_context.settings, minimum_version=wanted[0], maximum_version=wanted[-1]
    )
    return Security(TlsContext(settings), security.sasl)
