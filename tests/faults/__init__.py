"""Faults: the power goes, the disk fills up, bits flip; nothing that was acknowledged is lost."""
