"""Points at which a test or the demo may kill the process, as a crash would: `PENSTOCK_FAILPOINT=committed:orders`."""

from __future__ import annotations

import os
import signal


def reach(step: str) -> None:
    """Die by SIGKILL if the environment names this step; otherwise do nothing."""
    if os.environ.get("PENSTOCK_FAILPOINT") == step:
        os.kill(os.getpid(), signal.SIGKILL)
