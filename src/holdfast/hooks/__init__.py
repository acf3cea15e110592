"""Hooks of coding agents: one short process for each event that an agent reports.

An event comes as JSON on standard input (`events`), is translated from the agent's words into ours
(`agents`), and either needs nothing, which `quick` finds out without importing anything large, or is acted
upon (`acting`). What one process has to leave for the next lies in `.agents/hooks` (`desk`); what counts is
in the database. Whatever goes wrong, the agent is not disturbed: `command` sees to that. How hooks get into an agent's settings is `installing`.

This package imports nothing by itself, since most events are over in a moment.
"""
