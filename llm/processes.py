"""What processes that this program starts have in common."""

from __future__ import annotations

import os
import threading
import time

__all__ = ["end_with"]


def end_with(parent: int) -> None:
    """Have this process end within a second of its parent's end, however that came, as if it were killed.

    Parameters
    ----------
    parent
        The parent's number. The parent hands it over: it may be gone before this process can ask.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
