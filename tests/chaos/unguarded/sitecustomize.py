"""Imported by every Python process whose PYTHONPATH names this folder: takes the guard out.

For the control run of the matrix, which must fail.  Nothing is answered in the client's place, and no
turn of a lost worker is ended.
"""

import math
import sys

if "workers" in sys.orig_argv:
    from workers.guard import Guard

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
