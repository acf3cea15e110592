"""Bundles: one file that a session travels in, and the way from store to store.

`write_bundle` puts a session into a file, `open_bundle` verifies one before anything of it is used, and
`holdfast.bundle.moving` brings a session, from a file or another store, into a store.
"""

from holdfast.bundle.reading import Bundle, open_bundle
from holdfast.bundle.writing import BundleReport, write_bundle

__all__ = ["Bundle", "BundleReport", "open_bundle", "write_bundle"]
