"""Imported by every Python process whose PYTHONPATH names this folder: takes the guard out.

For the control run of the matrix, which must fail.  Nothing is answered in the client's place, no turn
of a lost worker is ended, and nobody looks for the hooks that were lost with its bridge.
"""

import math
import sys

if "workers" in sys.orig_argv:
    from workers.guard import Guard
    from workers.hook_watch import HookWatch

    HookWatch.attached = lambda self, session: None
    Guard.next_deadline = lambda self: math.inf
    Guard.expired = lambda self, now: []
    Guard.client_lost = lambda self, now: None
    Guard.leave = lambda self, why: []
    Guard.close_all = lambda self, why: []
elif "gateway.front" in sys.orig_argv:
    from gateway.front.rescue import Rescuer

    async def rescue(self, wards, reason):
        return True

    Rescuer.rescue = rescue
