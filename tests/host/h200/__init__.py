"""Why each verdict on the recorded H200 machine is right: `ARGUED` by layer."""

ARGUED: dict[str, str] = {}
