"""`make sweep` and `make soak`. Exit 1 for any bad outcome, with evidence and how to run it again.

run [CASE...]   every case, or these: `upgrade:arm/done:cut`, as the output names them; `--rotating` for each point once
soak [CASE...]  random faults at random times for a while, or these: `SEED/NUMBER`
"""

import argparse
import secrets
import sys


def main() -> int:
    # Not above: every forked controller imports this module again.
    from tests.lab.sweep import soak, sweeping  # noqa: PLC0415
    from tests.lab.sweep.experiment import Case  # noqa: PLC0415

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "soak"])
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--rotating", action="store_true")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", default=secrets.token_hex(4))
    asked = parser.parse_intermixed_args()
    if asked.what == "soak":
        return soak.soak(asked.cases, asked.hosts, asked.seed, asked.minutes)
    every = sweeping.rotating if asked.rotating else sweeping.every_case
    return sweeping.sweep([Case.parse(each) for each in asked.cases] or [*every()], asked.hosts)


if __name__ == "__main__":
    sys.exit(main())
