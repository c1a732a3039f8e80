"""SASL's mechanisms without a connection: what they say, and what they don't believe."""

from __future__ import annotations

import random
import re

import pytest

from kclient.credentials import Token
from kclient.errors import AuthenticationFailed
from kclient.network.sasl.oauthbearer import OAuthBearer
from kclient.network.sasl.plain import Plain
from kclient.network.sasl.scram import Scram
from kclient.secret import Secret
from tests.unit.network.scram_server import ScramServer

NAMES = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
PASSWORDS = ["pencil", "p,w=d", "пароль", "Ⅸ\u00ad", " leading", "x" * 2000]
"""Some of which SASLprep would change, which Kafka doesn't use."""


def said(step: bytes | None) -> bytes:
    assert step is not None
    return step


class TestPlain:
    def test_sends_name_and_password(self) -> None:
        mechanism = Plain("ålice", Secret("pass=,word"))
        assert mechanism.step(None) == "\0ålice\0pass=,word".encode()
        assert mechanism.step(b"") is None

    def test_a_challenge_is_no_part_of_it(self) -> None:
        mechanism = Plain("alice", Secret("hunter2"))
        mechanism.step(None)
        with pytest.raises(AuthenticationFailed, match="no challenge"):
            mechanism.step(b"more, please")


class TestScram:
    def test_speaks_as_the_example_of_rfc_7677(self) -> None:
        scram = Scram("SCRAM-SHA-256", "user", Secret("pencil"), nonce="rOprNGfwEbeRWgbNEkqO")
        assert scram.step(None) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
        challenge = (
            b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
            b"s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
        )
        assert scram.step(challenge) == (
            b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
            b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        )
        assert scram.step(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None

    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize("password", PASSWORDS)
    def test_both_sides_prove_the_password(self, name: str, password: str) -> None:
        server = ScramServer(name, password)
        scram = Scram(name, "alice", Secret(password), nonce="ours")
        challenge = server.first(said(scram.step(None)))
        assert scram.step(server.final(said(scram.step(challenge)))) is None
        assert server.accepted

    def test_a_wrong_password_is_the_brokers_to_refuse(self) -> None:
        server = ScramServer("SCRAM-SHA-512", "right")
        scram = Scram("SCRAM-SHA-512", "alice", Secret("wrong"), nonce="ours")
        refused = server.final(said(scram.step(server.first(said(scram.step(None))))))
        assert not server.accepted
        with pytest.raises(AuthenticationFailed, match="invalid-proof"):
            scram.step(refused)

    def test_names_are_escaped(self) -> None:
        scram = Scram("SCRAM-SHA-256", "a=b,c", Secret("x"), nonce="n")
        assert scram.step(None) == b"n,,n=a=3Db=2Cc,r=n"

    def test_a_delegation_token_says_so(self) -> None:
        scram = Scram("SCRAM-SHA-256", "id", Secret("x"), delegation_token=True, nonce="n")
        assert scram.step(None) == b"n,,n=id,r=n,tokenauth=true"

    @pytest.mark.parametrize("iterations", [4096, 1_000_000])
    def test_iterations_up_to_a_million_are_taken(self, iterations: int) -> None:
        scram = Scram("SCRAM-SHA-256", "a", Secret("x"), nonce="ours")
        scram.step(None)
        assert scram.step(b"r=ourstheirs,s=c2FsdA==,i=%d" % iterations)

    CHALLENGES = (
        b"",
        b"r=ours",
        b"r=ours,s=c2FsdA==,i=4096",
        b"r=ourtheirs,s=c2FsdA==,i=4096",
        b"r=theirsours,s=c2FsdA==,i=4096",
        b"r=theirs,s=c2FsdA==,i=4096",
        b"r=,s=c2FsdA==,i=4096",
        b"r=ours theirs,s=c2FsdA==,i=4096",
        "r=oursж,s=c2FsdA==,i=4096".encode(),
        b"r=ours\x00theirs,s=c2FsdA==,i=4096",
        b"r=ourstheirs,s=,i=4096",
        b"r=ourstheirs,s====,i=4096",
        b"r=ourstheirs,s=c2FsdA=,i=4096",
        b"r=ourstheirs,s=c2FsdA===,i=4096",
        b"r=ourstheirs,s=c2Fs dA==,i=4096",
        b"r=ourstheirs,s=c2Fs-A==,i=4096",
        b"r=ourstheirs,s=c,i=4096",
        b"r=ourstheirs,s=c2FsdA==,i=",
        b"r=ourstheirs,s=c2FsdA==,i=0",
        b"r=ourstheirs,s=c2FsdA==,i=1",
        b"r=ourstheirs,s=c2FsdA==,i=4095",
        b"r=ourstheirs,s=c2FsdA==,i=04096",
        b"r=ourstheirs,s=c2FsdA==,i=1000001",
        b"r=ourstheirs,s=c2FsdA==,i=99999999999999999999",
        b"r=ourstheirs,s=c2FsdA==,i=-1",
        b"r=ourstheirs,s=c2FsdA==,i=-4096",
        b"r=ourstheirs,s=c2FsdA==,i=+4096",
        b"r=ourstheirs,s=c2FsdA==,i=4_096",
        b"r=ourstheirs,s=c2FsdA==,i=4096.0",
        b"r=ourstheirs,s=c2FsdA==,i=0x1000",
        b"r=ourstheirs,s=c2FsdA==,i= 4096",
        b"r=ourstheirs,s=c2FsdA==,i=4096\n",
        "r=ourstheirs,s=c2FsdA==,i=٤٠٩٦".encode(),
        b"m=ext,r=ourstheirs,s=c2FsdA==,i=4096",
        b"r=ourstheirs,m=ext,s=c2FsdA==,i=4096",
        b"r=ourstheirs,s=c2FsdA==,i=4096,m=ext",
        b"s=c2FsdA==,r=ourstheirs,i=4096",
        b"r=ourstheirs,i=4096,s=c2FsdA==",
        b"r=ourstheirs,r=ourstheirs,s=c2FsdA==,i=4096",
        b"v=c2FsdA==",
    )

    @pytest.mark.parametrize("challenge", CHALLENGES)
    def test_a_challenge_that_is_none_is_refused(self, challenge: bytes) -> None:
        scram = Scram("SCRAM-SHA-256", "a", Secret("hunter2"), nonce="ours")
        scram.step(None)
        with pytest.raises(AuthenticationFailed) as caught:
            scram.step(challenge)
        assert "hunter2" not in str(caught.value)

    @pytest.mark.parametrize(
        "final",
        [b"", b"v=", b"v=AAAA", b"v=%%%%", b"x=AAAA", b"e=other-error", b"v=AAAA,x=1", b" v=AAAA"],
    )
    def test_a_broker_without_proof_is_refused(self, final: bytes) -> None:
        server = ScramServer("SCRAM-SHA-256", "right")
        scram = Scram("SCRAM-SHA-256", "alice", Secret("right"), nonce="ours")
        server.final(said(scram.step(server.first(said(scram.step(None))))))
        assert server.accepted
        with pytest.raises(AuthenticationFailed):
            scram.step(final)

    def test_no_mutant_of_the_brokers_words_is_accepted(self) -> None:
        rng = random.Random(28)
        accepted = 0
        for number in range(10_000):
            server = CheapServer()
            scram = Scram("SCRAM-SHA-256", "alice", Secret("right"), nonce="ours")
            first = server.first(said(scram.step(None)))
            which = number % 2
            try:
                challenge = mutant(first, rng) if which else first
                if huge(challenge):
                    continue
                final = server.final(said(scram.step(challenge)))
                scram.step(final if which else mutant(final, rng))
            except AuthenticationFailed:
                continue
            accepted += 1
        assert accepted == 0


class CheapServer(ScramServer):
    """Shares one salted password among thousands."""

    template = ScramServer("SCRAM-SHA-256", "right", nonce="theirs")

    def __init__(self) -> None:
        self.__dict__.update(self.template.__dict__)


def huge(challenge: bytes) -> bool:
    """It asks for a number of iterations that is allowed, and would take seconds."""
    found = re.search(rb"i=([0-9]{5,7})$", challenge)
    return found is not None


def mutant(message: bytes, rng: random.Random) -> bytes:
    """The message with one to three bytes changed, left out, doubled or put in."""
    changed = bytearray(message)
    while bytes(changed) == message:
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(changed) or 1)
            how = rng.randrange(4)
            if how == 0 and changed:
                changed[at] ^= 1 << rng.randrange(8)
            elif how == 1 and changed:
                del changed[at]
            elif how == 2:
                changed.insert(at, rng.randrange(256))
            else:
                changed[at:at] = changed[at : at + rng.randint(1, 4)]
    return bytes(changed)


class TestOAuthBearer:
    def test_sends_token_and_extensions(self) -> None:
        token = Token("a.b.c", extensions={"logicalCluster": "lkc-1", "pool": "p 1"})
        mechanism = OAuthBearer(token)
        assert mechanism.step(None) == (
            b"n,,\x01auth=Bearer a.b.c\x01logicalCluster=lkc-1\x01pool=p 1\x01\x01"
        )
        assert mechanism.step(b"") is None

    def test_a_refusal_is_acknowledged_and_then_raised(self) -> None:
        mechanism = OAuthBearer(Token("a.b.c"))
        mechanism.step(None)
        assert mechanism.step(b'{"status":"invalid_token"}') == b"\x01"
        with pytest.raises(AuthenticationFailed, match="invalid_token"):
            mechanism.step(b"")
