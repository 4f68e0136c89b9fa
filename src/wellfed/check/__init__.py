"""Rules, pure: a Machine or an analysed trace in, Verdicts out. Tables of comparisons, functions by topic."""
