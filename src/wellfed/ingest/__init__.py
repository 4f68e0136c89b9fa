"""One file per source of events: everything becomes a `Timeline`. Damaged input gives what is left in it."""
