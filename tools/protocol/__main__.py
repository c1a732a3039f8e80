"""``python -m tools.protocol [--check]``: write the generated files, or compare them."""

from __future__ import annotations

import argparse
import sys

from tools.protocol import configs, emit_module, errors, output
from tools.protocol.definitions import read_release
from tools.protocol.jars import RELEASES, ToolMissing
from tools.protocol.merge import merge_releases
from tools.protocol.selection import generated


def generate() -> dict[str, str]:
    """Relative path -> text of every generated file."""
    newer, older = (read_release(release) for release in RELEASES)
    definitions = generated(merge_releases(newer, older))
    spoken = {one.api_key for one in definitions if one.kind == "request"}
    unspoken = {
        one.api_key: one.name.removesuffix("Request")
        for one in [*older.values(), *newer.values()]
        if one.kind == "request" and one.api_key is not None and one.api_key not in spoken
    }
    return {
        **emit_module.generate(definitions, unspoken),
        **errors.generate(),
        **configs.generate(),
    }


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.protocol", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="change nothing; fail if a file would change"
    )
    chosen = parser.parse_args(arguments)
    try:
        files = generate()
    except ToolMissing as problem:
        print(problem, file=sys.stderr)
        return 2
    if not chosen.check:
        print(f"{output.write(files)} of {len(files)} files changed")
        return 0
    different = output.differences(files)
    for line in different:
        print(line, file=sys.stderr)
    if different:
        print("Run python -m tools.protocol and commit what it writes.", file=sys.stderr)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
