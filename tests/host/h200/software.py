"""Why each verdict of the layer software is right."""

ARGUED: dict[str, str] = {
    "SW07": "processes were not recorded",
    "SW09": "this looks like a container",
    "SW12": "matters for benchmarks; there is no systemd to ask",
    "SW02": "processes were not recorded",
    "SW10": "this looks like a container",
}
