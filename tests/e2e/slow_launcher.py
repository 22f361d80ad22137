"""A launcher that takes long to start a server, as `uvx` may: longer than a client waits for its probe.

    slow_launcher.py COMMAND [ARGUMENT …]

It keeps the input back until `initialize` is in it, which a client sends only after it has given up its
`server/discover`, and then hands all of it on. So the test depends on no clock.
"""

from __future__ import annotations

import subprocess
import sys


def main() -> int:
    held: list[bytes] = []
    for line in sys.stdin.buffer:
        held.append(line)
        if b'"initialize"' in line:
            break
    with subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE) as server:
        assert server.stdin is not None
        try:
            for line in held:
                server.stdin.write(line)
            server.stdin.flush()
            for line in sys.stdin.buffer:
                server.stdin.write(line)
                server.stdin.flush()
            server.stdin.close()
        except BrokenPipeError:
            pass
        return server.wait()


if __name__ == "__main__":
    sys.exit(main())
