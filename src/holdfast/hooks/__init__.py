"""What coding agents call: hooks around their work, and how these get into their settings."""
