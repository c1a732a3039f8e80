"""``python -m kclient``: the same as the command ``kclient``."""

from __future__ import annotations

from kclient.cli import main

if __name__ == "__main__":
    main()
