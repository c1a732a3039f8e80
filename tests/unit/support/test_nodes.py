"""Three nodes: which versions are refused before anything is started."""

from __future__ import annotations

import pytest

from tests.support import nodes


@pytest.mark.parametrize("version", ["2.8.2", "3.2.3", "4.3", "latest"])
def test_another_version_is_refused_at_once(
    version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match=version), nodes.three_nodes(version, purpose="none"):
        pass
    assert nodes.main(["start", version]) == 1
    assert version in capsys.readouterr().err
