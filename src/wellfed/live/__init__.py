"""Processes of the user's: put in their place, started, watched."""
