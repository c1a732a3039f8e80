"""Tokens of Amazon MSK: a URL signed with credentials of AWS (SigV4), which brokers verify.

botocore finds the credentials. The URL is signed here, as botocore's signer logs it at DEBUG.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import time
from typing import Any
from urllib.parse import quote, urlencode

from kclient.credentials import Token
from kclient.errors import AuthenticationFailed, InvalidConfig

LIFETIME = 900
"""Seconds for which a token is valid."""
_ALGORITHM = "AWS4-HMAC-SHA256"
_REGION = re.compile(r"[a-z]{2,4}(-[a-z]+)+-[0-9]{1,2}")


class MskIamTokens:
    """A source of tokens, whose credentials are looked up for each. It blocks: see ``Security``.

    Args:
        region: Where the cluster is; None for the region of the profile.
        profile: Of AWS's shared files; None for the default of AWS's tools.
        role_arn: A role to assume with what is found.

    Raises:
        InvalidConfig: One of them is unusable, or ``kclient[msk]`` isn't installed.
    """

    def __init__(
        self, region: str | None, profile: str | None = None, role_arn: str | None = None
    ) -> None:
        if region is not None and (not isinstance(region, str) or not _REGION.fullmatch(region)):
            raise InvalidConfig(
                f"region={region!r} can't be used: allowed is one of AWS, such as 'eu-west-1'"
            )
        for name, given in (("profile", profile), ("role_arn", role_arn)):
            if given is not None and (not isinstance(given, str) or not given):
                raise InvalidConfig(f"{name}={given!r} can't be used: allowed is its name as text")
        try:
            import botocore  # noqa: F401
        except ImportError as error:
            raise InvalidConfig(
                f"IAM of Amazon MSK needs a package more: {error}",
                hint="pip install 'kclient[msk]'",
            ) from error
        self.region = region
        self.profile = profile
        self.role_arn = role_arn

    def __repr__(self) -> str:
        return f"MskIamTokens({self.region!r}, {self.profile!r}, {self.role_arn!r})"

    def __call__(self) -> Token:
        """Look up the credentials, and sign a token.

        Raises:
            AuthenticationFailed: There are no credentials, no such profile, or no region.
        """
        from botocore.exceptions import BotoCoreError, ClientError, ProfileNotFound

        try:
            return self._signed()
        except ProfileNotFound as error:
            raise AuthenticationFailed(str(error)) from None
        except ClientError as error:
            failed = AuthenticationFailed(f"AWS gives no credentials: {error}")
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            throttled = "Throttl" in error.response.get("Error", {}).get("Code", "")
            failed.retriable = throttled or not 400 <= status < 500
            raise failed from None
        except BotoCoreError as error:
            failed = AuthenticationFailed(f"AWS gives no credentials: {error}")
            failed.retriable = True
            raise failed from None

    def _signed(self) -> Token:
        from botocore.session import Session

        session = Session(profile=self.profile)
        region = self.region or session.get_config_variable("region")
        credentials = session.get_credentials()
        if credentials is None:
            failed = AuthenticationFailed(
                "there are no credentials of AWS",
                hint="they are looked for in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, in "
                "~/.aws/credentials and ~/.aws/config, and at the role of the container or machine",
            )
            failed.retriable = True  # a machine's role isn't found, either, while that is slow
            raise failed
        if not region:
            raise AuthenticationFailed(
                "the region of the cluster isn't known",
                hint="Security.msk_iam('eu-west-1') has it, the bootstrap.servers of a file, or "
                "region= of the AWS profile",
            )
        if self.role_arn is not None:
            credentials = _of_role(session, region, self.role_arn)
        signed_at = int(time.time())
        url = _signed_url(region, credentials.get_frozen_credentials(), signed_at)
        value = base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")
        return Token(value, expires_at=float(signed_at + LIFETIME))


def _of_role(session: Any, region: str, role_arn: str) -> Any:
    """Credentials of a role that those of the session may assume."""
    from botocore.config import Config
    from botocore.credentials import Credentials

    limits = Config(connect_timeout=5.0, read_timeout=5.0, retries={"total_max_attempts": 2})
    service = session.create_client("sts", region_name=region, config=limits)
    given = service.assume_role(RoleArn=role_arn, RoleSessionName="kclient")["Credentials"]
    return Credentials(given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"])


def _signed_url(region: str, credentials: Any, signed_at: int) -> str:
    from kclient import __version__

    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(signed_at))
    scope = f"{stamp[:8]}/{region}/kafka-cluster/aws4_request"
    host = f"kafka.{region}.amazonaws.com"
    query = {
        "Action": "kafka-cluster:Connect",
        "X-Amz-Algorithm": _ALGORITHM,
        "X-Amz-Credential": f"{credentials.access_key}/{scope}",
        "X-Amz-Date": stamp,
        "X-Amz-Expires": str(LIFETIME),
        "X-Amz-SignedHeaders": "host",
    }
    if credentials.token:
        query["X-Amz-Security-Token"] = credentials.token
    ordered = urlencode(sorted(query.items()), quote_via=quote)
    request = f"GET\n/\n{ordered}\nhost:{host}\n\nhost\n{hashlib.sha256().hexdigest()}"
    digest = hashlib.sha256(request.encode()).hexdigest()
    key = f"AWS4{credentials.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, f"{_ALGORITHM}\n{stamp}\n{scope}\n{digest}".encode(), "sha256")
    query |= {"X-Amz-Signature": signature.hex(), "User-Agent": f"kclient/{__version__}"}
    return f"https://{host}/?{urlencode(query, quote_via=quote)}"
