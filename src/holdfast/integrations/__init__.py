"""Adapters for agent frameworks, each a module that needs the extra of the same name.

They translate between the words of a framework and ours, and store nothing by themselves.
"""
