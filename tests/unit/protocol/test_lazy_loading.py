"""What an import loads: in a fresh interpreter, since this one has loaded everything."""

from __future__ import annotations

import json
import subprocess
import sys

PREFIX = "kclient.protocol.messages."


def loaded_by(statement: str) -> set[str]:
    """Return the message modules that a statement loads."""
    program = f"import json, sys\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    return {name[len(PREFIX) :] for name in json.loads(done.stdout) if name.startswith(PREFIX)}


def test_headers_and_versions_load_no_message() -> None:
    assert not loaded_by("import kclient.protocol.headers, kclient.protocol.api_versions")
    assert not loaded_by("from kclient.protocol import api_versions; api_versions.API_NAMES[3]")


def test_asking_for_a_message_loads_its_module_only() -> None:
    assert loaded_by("from kclient.protocol.messages.metadata import MetadataRequest") == {
        "metadata"
    }
    statement = "from kclient.protocol import api_versions; api_versions.request_class(1)"
    assert loaded_by(statement) == {"fetch"}
    assert loaded_by("from kclient.protocol.messages import EndTxnMarker") == {"control_records"}


def test_diagnosis_is_loaded_on_bad_input_only() -> None:
    program = (
        "import sys\n"
        "from kclient.protocol.messages.heartbeat import HeartbeatRequest as R\n"
        "R.decode(R().encode(4), 4)\n"
        "assert 'kclient.protocol.diagnosis' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
