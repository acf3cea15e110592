"""Effects: steps that change the world, and run once.

A step is recorded as *started* before its body runs and as *done* or *failed* after it. A later run that
comes to the same step finds the record. Done is replayed: the body does not run again. Started without
an end is *unknown*: nobody can tell from here whether it happened, so nothing is guessed and the step's
policy decides, as it does for one that failed:

    fail    raise `EffectUnknown` or `EffectFailed` (the default)
    retry   run it again, with the same idempotency key
    ask     call ``reconcile`` with the recorded effect, which looks at the world and says

What makes two steps the same is what they are: their name and arguments, or the key that was given. So
steps that run at the same time find their own records in whatever order they start. A step that is
used several times is counted; the count begins anew with each run, which is what makes a replay line
up. A use that raised is not over: the next call is the same effect again, never a second one.

A body runs at most once for each record that says started. No record can tell more than that.
"""

from holdfast.effects.call import Call, Declaration
from holdfast.effects.effect import Effect, Verdict
from holdfast.effects.ledger import Ledger
from holdfast.effects.raised import error_document, error_message
from holdfast.effects.uses import is_running_here

__all__ = [
    "Call",
    "Declaration",
    "Effect",
    "Ledger",
    "Verdict",
    "error_document",
    "error_message",
    "is_running_here",
]
