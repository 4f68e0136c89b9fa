"""`python -m wellfed.live.loader.server ADDRESS`: imports torch and the user's module once, calls the factory, then forks a
probe for each request. Ends, with all that it started, when the tuner is gone."""

import contextlib
import os
import signal
import sys
import time
import traceback
from multiprocessing.connection import Client, Connection
from typing import Any

from wellfed.live.loader.wire import receive, send


def main() -> None:
    address, token = sys.argv[1], os.environ.pop("WELLFED_LOADER_TOKEN", "")
    tuner = connect(address, token, {"role": "server", "pid": os.getpid()})
    try:
        start = receive(tuner)
        began = time.perf_counter()
        import numpy  # noqa: F401 - its threads are no news

        imported = time.perf_counter()
        spec, reply = _build(start)
        reply |= {"import_s": imported - began, "build_s": time.perf_counter() - imported}
        send(tuner, reply)
        if spec is not None:
            _serve(tuner, address, token, spec)
    except (EOFError, OSError):
        pass


def connect(address: str, token: str, hello: dict[str, Any]) -> Connection:
    connection = Client(address, family="AF_UNIX")
    send(connection, {**hello, "token": token})
    return connection


def _build(start: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    from wellfed.live.loader.build import Unfit, build
    from wellfed.live.loader.facts import facts_of, freeze, native_threads

    natives = native_threads()
    try:
        spec = build(start["target"], start["batch_size"])
        facts = facts_of(spec, natives)
        freeze()
        return spec, {"ok": True, **facts}
    except Unfit as error:
        return None, {"ok": False, "error": str(error), "hint": error.hint}
    except Exception as error:  # noqa: BLE001 - the user's code; its error is told, not ours
        traceback.print_exc()
        return None, {"ok": False, "error": f"{type(error).__name__}: {error}", "hint": ""}


def _serve(tuner: Connection, address: str, token: str, spec: Any) -> None:
    children: set[int] = set()
    try:
        while True:
            request = receive(tuner)
            _reap(children)
            sys.stdout.flush()
            sys.stderr.flush()
            pid = os.fork()
            if pid == 0:
                tuner.close()
                _probe(address, token, spec, request)
            children.add(pid)
            send(tuner, {"pid": pid})
    except (EOFError, OSError):
        for pid in children:
            with contextlib.suppress(OSError):
                os.killpg(pid, signal.SIGKILL)


def _reap(children: set[int]) -> None:
    for pid in tuple(children):
        with contextlib.suppress(OSError):
            if os.waitpid(pid, os.WNOHANG)[0]:
                children.discard(pid)


def _probe(address: str, token: str, spec: Any, request: dict[str, Any]) -> None:
    code = 1
    try:
        os.setsid()
        from wellfed.live.loader.probe import run

        run(connect(address, token, {"role": "probe", "pid": os.getpid(), "number": request["number"]}), spec)
        code = 0
    except (EOFError, OSError):
        pass
    except BaseException:  # noqa: BLE001 - nothing may return into the server's loop
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
