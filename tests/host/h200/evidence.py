"""Why each verdict on files handed over is right."""

ARGUED = {"NVL10": "nobody handed over a log"}
