"""One file per measured ceiling: `needs(machine)` says whether it can run, `measure(budget_s)` runs it."""
