"""The credentials of a client: passwords that change, tokens that are fetched once and in time."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kclient import InvalidArgument, Security
from kclient.credentials import Token
from kclient.errors import AuthenticationFailed
from kclient.network.sasl.login import RETRY, UNKNOWN_LIFE, Login

EPOCH = 1_800_000_000.0
CANARY = "canary-77"


class SetClock:
    """Stands until it is moved."""

    def __init__(self) -> None:
        self.at = EPOCH

    def now(self) -> float:
        return self.at

    def wall_ms(self) -> int:
        return int(self.at * 1000)


class Issuer:
    """A server of tokens that live for an hour."""

    def __init__(self, clock: SetClock) -> None:
        self.clock = clock
        self.asked = 0
        self.down = False
        self.life = 3600.0

    async def __call__(self) -> Token:
        self.asked += 1
        await asyncio.sleep(0)
        if self.down:
            raise ConnectionRefusedError("no server there")
        return Token(f"token-{self.asked}", expires_at=self.clock.at + self.life)


def login(security: Security, clock: SetClock) -> Login:
    assert security.sasl is not None
    return Login(security.sasl, clock, random.Random(1), spawn)


def spawn(coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
    return asyncio.create_task(coroutine, name=name)


async def first_words(one: Login) -> bytes:
    said = (await one.mechanism("broker")).step(None)
    assert said is not None
    return said


def jwt(claims: object) -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{body}.c2ln"


class TestPasswords:
    @pytest.mark.parametrize("kind", ["coroutine", "plain", "returns an awaitable"])
    async def test_a_function_is_asked_for_each_authentication(self, kind: str) -> None:
        threads: list[int] = []

        def plain() -> tuple[str, str]:
            threads.append(threading.get_ident())
            return "alice", f"password-{len(threads)}"

        async def coroutine() -> tuple[str, str]:
            return plain()

        functions: dict[str, Callable[[], Any]] = {
            "coroutine": coroutine,
            "plain": plain,
            "returns an awaitable": lambda: coroutine(),
        }
        one = login(Security.sasl_plain(credentials=functions[kind], unencrypted=True), SetClock())
        assert await first_words(one) == b"\0alice\0password-1"
        assert await first_words(one) == b"\0alice\0password-2"
        in_loop = threading.get_ident() in threads
        assert in_loop is (kind != "plain")

    @pytest.mark.parametrize(
        "given", [None, "alice", ("alice",), ("alice", None), ("", CANARY), ("a", CANARY + "\0")]
    )
    async def test_what_is_no_name_and_password_is_refused(self, given: Any) -> None:
        one = login(Security.sasl_plain(credentials=lambda: given, unencrypted=True), SetClock())
        with pytest.raises(AuthenticationFailed, match="credentials gave") as caught:
            await one.mechanism("broker")
        assert CANARY not in str(caught.value)

    async def test_a_function_that_fails_is_the_reason(self) -> None:
        def fail() -> tuple[str, str]:
            raise OSError("the vault is sealed")

        one = login(Security.sasl_plain(credentials=fail, unencrypted=True), SetClock())
        with pytest.raises(AuthenticationFailed, match="the vault is sealed") as caught:
            await one.mechanism("broker")
        assert isinstance(caught.value.__cause__, OSError)

    async def test_each_scram_has_a_nonce_of_its_own(self) -> None:
        one = login(Security.sasl_scram("alice", "x", unencrypted=True), SetClock())
        assert len({await first_words(one) for _ in range(100)}) == 100


class TestTokens:
    async def test_one_is_fetched_for_all_connections(self) -> None:
        clock = SetClock()
        issuer = Issuer(clock)
        one = login(Security.oauth(issuer, unencrypted=True), clock)
        said = await asyncio.gather(*(first_words(one) for _ in range(100)))
        assert set(said) == {b"n,,\x01auth=Bearer token-1\x01\x01"}
        assert issuer.asked == 1

    async def test_the_next_comes_after_four_fifths_of_its_life(self) -> None:
        clock = SetClock()
        issuer = Issuer(clock)
        one = login(Security.oauth(issuer, unencrypted=True), clock)
        await first_words(one)
        clock.at += 0.75 * issuer.life
        assert b"token-1" in await first_words(one)
        clock.at += 0.10 * issuer.life
        assert b"token-2" in await first_words(one)

    async def test_a_server_that_is_down_matters_once_the_token_has_expired(self) -> None:
        clock = SetClock()
        issuer = Issuer(clock)
        one = login(Security.oauth(issuer, unencrypted=True), clock)
        await first_words(one)
        issuer.down = True
        clock.at += 0.9 * issuer.life
        for _ in range(10):
            assert b"token-1" in await first_words(one)
        assert issuer.asked == 2, "it is asked again after a pause only"
        clock.at += RETRY
        await first_words(one)
        assert issuer.asked == 3
        clock.at = EPOCH + issuer.life
        with pytest.raises(AuthenticationFailed, match="no server there"):
            await first_words(one)
        issuer.down = False
        assert b"token-5" in await first_words(one)

    async def test_a_server_that_hangs_holds_nobody_while_the_token_is_valid(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("kclient.network.sasl.login._MOMENT", 0.01)
        clock = SetClock()
        issuer = Issuer(clock)
        hangs = asyncio.Event()
        asked = 0

        async def source() -> Token:
            nonlocal asked
            asked += 1
            if asked > 1:
                await hangs.wait()
            return await issuer()

        one = login(Security.oauth(source, unencrypted=True), clock)
        await first_words(one)
        clock.at += 0.9 * issuer.life
        said = await asyncio.gather(*(first_words(one) for _ in range(20)))
        assert set(said) == {b"n,,\x01auth=Bearer token-1\x01\x01"}
        assert asked == 2
        hangs.set()
        await asyncio.sleep(0.01)
        assert b"token-2" in await first_words(one)

    async def test_a_dial_that_gives_up_leaves_the_fetch_to_the_next(self) -> None:
        clock = SetClock()
        slow = asyncio.Event()
        asked = 0

        async def source() -> Token:
            nonlocal asked
            asked += 1
            await slow.wait()
            return Token("slow", expires_at=clock.at + 100)

        one = login(Security.oauth(source, unencrypted=True), clock)
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await one.mechanism("broker")
        slow.set()
        assert b"slow" in await first_words(one)
        assert asked == 1

    async def test_a_failure_is_shared_by_all_that_wait(self) -> None:
        issuer = Issuer(SetClock())
        issuer.down = True
        one = login(Security.oauth(issuer, unencrypted=True), issuer.clock)
        found = await asyncio.gather(
            *(one.mechanism("broker") for _ in range(20)), return_exceptions=True
        )
        assert {type(error) for error in found} == {AuthenticationFailed}
        assert issuer.asked == 1

    async def test_no_expired_token_is_sent_in_a_thousand_lives(self) -> None:
        """Of a server that is down for half of the time, for ten connections at once."""
        clock = SetClock()
        rng = random.Random(5)
        issuer = Issuer(clock)
        issuer.life = 600.0
        one = login(Security.oauth(issuer, unencrypted=True), clock)
        expires: dict[bytes, float] = {}
        failures = renewals_failed = 0
        while len(expires) < 1000:
            issuer.down = rng.random() < 0.5
            asked = issuer.asked
            dials = [first_words(one) for _ in range(10)]
            found = await asyncio.gather(*dials, return_exceptions=True)
            fetches = issuer.asked - asked
            assert fetches <= 1, "one for the client, not one for each connection"
            said = found[0]
            if isinstance(said, bytes):
                assert set(found) == {said}
                if fetches and not issuer.down:
                    expires[said] = clock.at + issuer.life
                renewals_failed += fetches and issuer.down
                assert expires[said] > clock.at
            else:
                assert {type(one) for one in found} == {AuthenticationFailed}
                assert all(at <= clock.at for at in expires.values())
                failures += 1
            clock.at += rng.uniform(0, 240)
        assert failures > 10
        assert renewals_failed > 100

    async def test_a_jwt_says_itself_until_when_it_is_valid(self) -> None:
        clock = SetClock()
        said = [jwt({"exp": EPOCH + 100}), jwt({"exp": EPOCH + 1000})]
        one = login(Security.oauth(lambda: said.pop(0), unencrypted=True), clock)
        await first_words(one)
        clock.at += 70
        await first_words(one)
        assert len(said) == 1
        clock.at += 20
        await first_words(one)
        assert not said

    @pytest.mark.parametrize("text", ["opaque", "a.b.c", jwt([]), jwt({}), jwt({"exp": "soon"})])
    async def test_one_that_doesnt_is_used_for_a_minute(self, text: str) -> None:
        clock = SetClock()
        asked = 0

        def issue() -> str:
            nonlocal asked
            asked += 1
            return text

        one = login(Security.oauth(issue, unencrypted=True), clock)
        await first_words(one)
        clock.at += 0.7 * UNKNOWN_LIFE
        await first_words(one)
        assert asked == 1
        clock.at += 0.2 * UNKNOWN_LIFE
        await first_words(one)
        assert asked == 2

    async def test_an_expired_one_is_refused_here(self) -> None:
        clock = SetClock()
        one = login(Security.oauth(lambda: jwt({"exp": EPOCH - 7}), unencrypted=True), clock)
        with pytest.raises(AuthenticationFailed, match="expired 7 s ago") as caught:
            await one.mechanism("broker")
        assert "clock" in str(caught.value.hint)

    async def test_one_that_isnt_valid_yet_is_refused_here(self) -> None:
        found = []
        for early in (30, 300):  # the first may be because of clocks that differ a little
            token = jwt({"exp": EPOCH + 900, "nbf": EPOCH + early})
            one = login(Security.oauth(lambda said=token: said, unencrypted=True), SetClock())
            found += await asyncio.gather(one.mechanism("kafka"), return_exceptions=True)
        assert not isinstance(found[0], Exception)
        assert isinstance(found[1], AuthenticationFailed)
        assert "isn't valid for another 300 s (is this machine's clock right?)" in str(found[1])

    @pytest.mark.parametrize("given", [None, 7, "", "two words", "line\nbreak", "tököt"])
    async def test_what_is_no_token_is_refused(self, given: Any) -> None:
        one = login(Security.oauth(lambda: given, unencrypted=True), SetClock())
        with pytest.raises(AuthenticationFailed, match="token callback gave"):
            await one.mechanism("broker")

    @pytest.mark.parametrize("expires_at", ["soon", True, EPOCH * 1000, object()])
    def test_an_expiry_that_isnt_in_seconds_is_refused(self, expires_at: Any) -> None:
        with pytest.raises(InvalidArgument, match=r"expires_at=.* seconds since the epoch"):
            Token("t", expires_at=expires_at)

    @pytest.mark.parametrize(
        "extensions", [{"auth": "x"}, {"a1": "x"}, {"": "x"}, {"a": "\x01"}, {"a": "ö"}]
    )
    def test_extensions_that_cant_be_sent_are_refused(self, extensions: dict[str, str]) -> None:
        with pytest.raises(InvalidArgument, match="extension"):
            Token("a.b.c", extensions=extensions)


def test_a_session_is_renewed_when_most_of_it_is_over() -> None:
    one = login(Security.sasl_plain("a", "b", unencrypted=True), SetClock())
    times = [one.renewal(100.0) for _ in range(1000)]
    assert 85.0 <= min(times) < 86.0
    assert 94.0 < max(times) <= 95.0
