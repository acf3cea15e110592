"""The scripts of the skill: thin doors to the installed package."""
