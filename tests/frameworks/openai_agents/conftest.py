"""Runs send no traces anywhere, in processes of their own neither."""

import os

os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"
