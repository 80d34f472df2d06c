"""The command ``eventlog``, also as ``python -m eventlog``.

In a container, the kernel drops a signal to process 1 if the process has no handler for it. The
command takes a second to load, longer on a busy machine. So the handlers are set before anything
else is loaded.
"""

import os
import signal
from types import FrameType


def end_at_once(number: int, _frame: FrameType | None) -> None:
    """End this process with the code that a shell shows for a signal that nobody handles."""
    os._exit(128 + number)


def install_signal_handlers() -> None:
    """Let SIGTERM and SIGHUP end process 1, as they end every other process."""
    if os.getpid() == 1:
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, end_at_once)


def main() -> None:
    """Run the command that the arguments of this process name."""
    install_signal_handlers()
    from eventlog import cli

    cli.main()


if __name__ == "__main__":
    main()
