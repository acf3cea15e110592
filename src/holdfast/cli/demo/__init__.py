"""The demonstration: a little agent with tools is killed, resumed, asked to wait, and rolled back.

`script` is what the model says, `project` what it works on, `agent` the program that gets killed. `run`
starts it, kills it, starts it again, goes back and forth, and notes what it sees; `report` says what
follows from that, and `timeline` what the database tells. Nothing is simulated but the model's words: five
processes, one SIGKILL, one git repository, one database.
"""
