"""A Timeline in: budget, idle causes, event graph, what-if. Pure numpy, integer nanoseconds."""
