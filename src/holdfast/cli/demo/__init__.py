"""The demonstration: an agent is killed in the middle of its work and another process finishes it.

`agent` is the program that gets killed, `run` starts it, kills it, starts it again and counts what
happened. Nothing is simulated: two processes, one SIGKILL, one database.
"""
