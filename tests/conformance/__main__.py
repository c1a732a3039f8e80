"""Print the differences of both sides in the scenarios whose names contain one of the words.

    python -m tests.conformance [WORD ...] [--full] [--real]

`--full` prints all of Kafka's responses too; `--real` only those, without the embedded cluster.
"""

from __future__ import annotations

import asyncio
import secrets
import sys

from tests.conformance.compare import difference, missing_codes, play, play_both, render
from tests.conformance.normalisation import load, normalised
from tests.conformance.places import OF_THREE, RELEASE, Place, ThreeNodes, one_node
from tests.conformance.run import Transcript
from tests.conformance.scenario import Scenario, all_scenarios
from tests.support import kafka
from tests.support.nodes import three_nodes

_OPTIONS = {"--full", "--real"}


async def show(scenario: Scenario, real: Place, options: set[str]) -> None:
    """Play one scenario, and print the result."""
    ours: Transcript | None = None
    rules, found = load(), ""
    try:
        if "--real" in options:
            theirs = await play(scenario, real, secrets.token_hex(4))
        else:
            ours, theirs = await play_both(scenario, real)
            found = difference(ours, theirs, rules)
    except Exception as problem:
        sys.stdout.write(f"\n=== {scenario.name} broke\n")
        for error in problem.exceptions if isinstance(problem, ExceptionGroup) else [problem]:
            notes = "\n".join(getattr(error, "__notes__", ()))
            sys.stdout.write(f"{type(error).__name__}: {error}\n{notes}\n")
        return
    state = "differs" if found else "agrees" if ours else "on Kafka"
    sys.stdout.write(f"\n=== {scenario.name} {state}\n")
    if missing := missing_codes(scenario, theirs):
        sys.stdout.write(f"Kafka didn't answer {', '.join(missing)}\n")
    if options:
        sys.stdout.write("\n".join(render(normalised(theirs, rules))) + "\n")
    sys.stdout.write(found + "\n" if found else "")
    sys.stdout.flush()


def main(arguments: list[str]) -> None:
    """The command line."""
    options = _OPTIONS.intersection(arguments)
    words = [one for one in arguments if one not in options]
    chosen = [
        one
        for one in all_scenarios().values()
        if not words or any(word in one.name for word in words)
    ]
    single = [one for one in chosen if one.nodes == 1]
    if single:
        running = kafka.acquire(RELEASE)
        try:
            broker = one_node(running.bootstrap)
            for one in single:
                asyncio.run(show(one, broker, options))
        finally:
            kafka.release(RELEASE)
    if len(single) < len(chosen):
        with three_nodes(RELEASE, purpose="conformance", settings=OF_THREE) as nodes:
            place = ThreeNodes(nodes)
            for one in chosen:
                if one.nodes > 1:
                    asyncio.run(show(one, place, options))
                    asyncio.run(place.heal())


if __name__ == "__main__":
    main(sys.argv[1:])
