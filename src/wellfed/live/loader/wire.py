"""Messages between the tuner and its children: JSON objects over a UNIX socket in a folder that only the user can enter."""

import json
from multiprocessing.connection import Connection
from typing import Any


def send(connection: Connection, message: dict[str, Any]) -> None:
    connection.send_bytes(json.dumps(message).encode())


def receive(connection: Connection) -> dict[str, Any]:
    """Raises EOFError when the other side is gone."""
    found: dict[str, Any] = json.loads(connection.recv_bytes(1 << 24))
    return found
