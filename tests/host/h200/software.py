"""Why each verdict of the layer software is right."""

ARGUED: dict[str, str] = {
    "SW07": "nvidia-smi: no process on the GPU",
    "SW09": "this looks like a container",
    "SW12": "matters for benchmarks; there is no systemd to ask",
    "SW02": "nvidia-smi: no process on the GPU",
    "SW10": "this looks like a container",
}
