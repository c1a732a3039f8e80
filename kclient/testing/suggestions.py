"""What a word was probably meant to be, at the end of the text that refuses it.

``api_names`` and ``fault_arguments`` use it.
"""

from __future__ import annotations

from collections.abc import Iterable

from kclient.settings import nearest


def meant(word: object, known: Iterable[str], form: str = "{!r}") -> str:
    """``: did you mean 'topic'?``, or nothing if nothing is near, whatever the case."""
    if not isinstance(word, str):
        return ""
    small = {one.lower(): one for one in known}
    near = nearest(word.lower(), small)
    return "" if near is None else f": did you mean {form.format(small[near])}?"
