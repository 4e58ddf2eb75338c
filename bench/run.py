"""`make bench`: every benchmark, one after the other, as a table of what was measured.

A benchmark is no test: it asserts nothing about time. Figures are for this machine and this moment; the ratios, taken
in turns within one run, are what can be compared.
"""

from __future__ import annotations

import os
import platform

import claims
import expectations
import gateway
import many_nodes
import memory
import overhead
import page_times
import reading
import scale
import service
import skills
import startup
import viewing


def main() -> None:
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start\n")
    run, look = (
        (startup, overhead, skills, memory, scale),
        (reading, expectations, claims, service, viewing, page_times),
    )
    for module in (*run, *look, gateway, many_nodes):
        print((module.__doc__ or "").splitlines()[0])
        for name, value in module.measure().items():
            print(f"  {name:40} {value:10.2f}")
        print()


if __name__ == "__main__":
    main()
