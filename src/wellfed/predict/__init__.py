"""Formulas and simulators: numbers in, numbers out. Knows no file, machine or timeline."""
