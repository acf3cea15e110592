"""What is left behind in files for the next reader, who may not have Holdfast.

`section` keeps a table of checkpoints between two markers of HANDOFF.md and leaves every other byte as it
is. `issue` writes a handoff of one issue, `session_log` a log of one session. Files of others are never
overwritten: what exists is changed between the markers or not at all.
"""

from holdfast.handoff.issue import write_issue_handoff
from holdfast.handoff.section import (
    Handoff,
    SectionReport,
    handoff_path,
    listed_checkpoints,
    read_handoff,
    update_handoff,
)
from holdfast.handoff.session_log import SessionLog, export_session_log

__all__ = [
    "Handoff",
    "SectionReport",
    "SessionLog",
    "export_session_log",
    "handoff_path",
    "listed_checkpoints",
    "read_handoff",
    "update_handoff",
    "write_issue_handoff",
]
