"""Tuning a DataLoader by measuring it.

`tune` (this process, no torch) asks a server (a child that imports torch and the user's module once) to fork a probe for
each setting, and speaks with each probe over a socket. All that is the user's runs in those children, in sessions of
their own, and is killed by tree.
"""
