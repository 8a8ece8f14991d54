"""``python -m gateway.front``: the front of the instance that the environment names."""

import sys

from gateway.front.leader_keeper import LeaderKeeper
from gateway.front.start import main

if __name__ == "__main__":
    sys.exit(main(LeaderKeeper))
