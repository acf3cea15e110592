"""The project directory that an agent works in."""
