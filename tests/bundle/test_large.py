"""A session that is much larger than the memory it takes to move it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from holdfast import SessionManager

ROOT = Path(__file__).parents[2]
PROGRAM = """
import json, resource, sys
from holdfast import SessionManager

what, project, bundle, target = sys.argv[1:]
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
with SessionManager.open(project_dir=project, workspace=False) as manager:
    before = peak()
    if what == "export":
        manager.export_session("large", bundle)
    elif what == "import":
        assert manager.import_bundle(bundle).outcome == "imported"
    else:
        assert manager.copy_to(target)[0].outcome == "copied"
    print(json.dumps(peak() - before))
"""


def test_memory_is_bounded_by_the_largest_state_not_by_the_session(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with SessionManager.open(project_dir=tmp_path / "a", workspace=False) as manager:
        session = manager.create_session("tester", session_id="large")
        for number in range(60):
            session.save_checkpoint(f"{number}", state={"page": os.urandom(1_000_000)})
    bundle = tmp_path / "large.tar"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    for what, project in (("export", "a"), ("import", "b"), ("copy", "a")):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, what, str(tmp_path / project), str(bundle),
             str(tmp_path / "copy.db")],
            env=environment, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert bundle.stat().st_size > 60_000_000
        assert json.loads(done.stdout) < 45_000_000
