"""Sealing: keys, the envelope around a sealed value, and names that say nothing of what they name.

Nothing here knows what is sealed; `holdfast.stores.sealed` does. The package ``cryptography`` (the extra
``crypto``) is imported with `holdfast.crypto.envelope`, which happens only where a key is set.
"""

from holdfast.crypto.keys import GivenKeys, KeyRing, Keys, KeySource, keys_from

__all__ = ["GivenKeys", "KeyRing", "KeySource", "Keys", "keys_from"]
