"""What each agent calls its events and tools, and how a conversation with it is taken up again.

A module each, with the same names in it:

- ``EVENTS`` translates the names of events
- ``TOOLS`` says what tools do: `READS` nothing else, `EDITS` files that it names, anything else `CHANGES`
- ``PATHS`` are the arguments that name files
- ``TRANSCRIPT`` is the format of its transcripts, if it keeps any
- ``resume(session_id)`` is the command line that takes a conversation up again
"""

READS = "reads"
EDITS = "edits"
CHANGES = "changes"
