"""The doctor: how an installation and a project are, and what can be saved of a damaged database.

`examine` only looks. `salvage` reads a damaged file and writes a new one; the damaged one stays as it is.
"""

from __future__ import annotations

from holdfast.doctor.examination import examine, examine_project
from holdfast.doctor.finding import Finding
from holdfast.doctor.leaving_out import Lost
from holdfast.doctor.salvage import SalvageReport, salvage

__all__ = ["Finding", "Lost", "SalvageReport", "examine", "examine_project", "salvage"]
