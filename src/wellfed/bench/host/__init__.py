"""What a host without GPUs can do: memory, processors, the kernel."""
