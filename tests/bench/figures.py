#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures everything that docs/figures.md shows, and writes that page.

Usage: figures.py RECLAIM_SCALE [--runs N] [--only NAME] > docs/figures.md     progress goes to stderr

Takes about ten minutes with 5 runs. Do not use the machine for anything else meanwhile.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

INTRO = """# Figures

Measured by `tests/bench/figures.py`, which also wrote this page: {runs} runs of each line in turn after a warm-up, medians;
`lowest..highest` is the spread of the first column. Machine: {machine}. See reclaim-scale(1) for what is measured how.

A figure of this page is a fact about this machine on one day. What a change costs or gains is told by a comparison in one run,
like those here, not by this page's numbers of another day.
"""

NS = "ns_per_object"
PEERS = "reclaim,malloc,ck-epoch,urcu-defer,dpdk-dq,urcu-call-rcu"
KFREE_COLUMNS = [NS, "client_cpu_ns", "daemon_cpu_ns", "batches", "footprint_bytes"]

# Name, heading, why, options, columns: the first is the one with its spread.
TABLES = [
    ("in-order", "Allocate and free in order",
     "8000 objects of 32 bytes, then as many deferred frees, until all are freed.",
     ["kfree", "--kfree-loops", "500", "--compare", PEERS], KFREE_COLUMNS),
    ("random-1000", "In random order over 1,000 live objects", "One object a record, for the daemon the dear case.",
     ["kfree", "--kfree-loops", "200", "--random", "1000", "--compare", PEERS], KFREE_COLUMNS),
    ("random-100000", "In random order over 100,000 live objects", "The same where caches do not hold the window.",
     ["kfree", "--kfree-loops", "200", "--random", "100000", "--compare", PEERS], KFREE_COLUMNS),
    ("interleaved", "Interleaved", "SCALE's other shape: allocate one, free one.",
     ["kfree", "--kfree-loops", "500", "--interleaved", "--compare", PEERS], KFREE_COLUMNS),
    ("threads", "Sixteen threads", "POLL's shape: 16 threads, 8000 objects a loop, here in 4 processes.",
     ["kfree", "--kfree-nthreads", "16", "--kfree-nprocs", "4", "--kfree-loops", "200", "--compare",
      "reclaim,malloc,ck-epoch,urcu-call-rcu"], KFREE_COLUMNS),
    ("poll", "Batches that poll, or queue behind callbacks", "POLL: the same flood with `gp-wait` either way.",
     ["kfree", "--kfree-nthreads", "4", "--kfree-loops", "200", "--compare-set", "gp-wait=poll,callback"], KFREE_COLUMNS),
    ("scale", "With and without batching", "SCALE: one callback an object, or one a batch.",
     ["kfree", "--kfree-loops", "100", "--compare-set", "batching=yes,no"], KFREE_COLUMNS + ["grace_periods"]),
    ("read", "A read section", "Lock, one dereference, unlock; one thread.",
     ["read", "--loops", "5", "--compare", "reclaim,urcu-memb,ck-epoch,dpdk-qsbr"], [NS]),
    ("sync", "Synchronize", "`floor` is what no service in another process can beat; `urcu-memb` stays in its process.",
     ["sync", "--compare", "reclaim,urcu-memb,floor"], ["p50_ns", "p99_ns", "wakeups"]),
    ("sync-callbacks", "Synchronize behind callbacks",
     "SYNC: a waiter behind a phone's 3,613 callbacks, woken through the FIFO or by the grace-period thread.",
     ["sync", "--calls", "500", "--callbacks", "3613", "--compare-set", "wake-from-gp=no,yes,auto"],
     ["p50_ns", "p99_ns", "callbacks_ahead", "fifo_entry_ns"]),
    ("sync-waiters", "Sixteen waiters at once", "Many waiters share a grace period; who wakes them?",
     ["sync", "--waiters", "16", "--nprocs", "4", "--calls", "500", "--compare-set", "wake-from-gp=no,yes,auto"],
     ["p50_ns", "p99_ns", "grace_periods"]),
    ("drain", "A trickle", "DRAIN: 1 to 6 frees each 8 ms for 5 s, at the kernel's old interval and at ours.",
     ["drain", "--duration", "5s", "--compare-set", "drain-interval=20ms,1s"],
     ["objects_per_page", "drains", "grace_periods", "wakeups", "daemon_cpu_ns"]),
    ("purge", "Purges", "PURGE: 100,000 extents of 16 KiB by 4 processes; a purge is queued although one runs, or not.",
     ["purge", "--compare-set", "purge-while-purging=yes,no"],
     ["purges_queued", "holes", NS, "footprint_bytes", "backed_bytes"]),
    ("attach", "Attach", "Open an arena, get a lane, close.", ["attach"], [NS, "p50_ns", "p99_ns"]),
    ("idle", "Idle", "Eight clients attached, nothing to do, 10 s.", ["idle"], ["wakeups"]),
]


def human(name, value):
    if value is None:
        return "-"
    if name.endswith("_bytes"):
        return f"{value / 2**20:.1f} MB" if value >= 2**20 else f"{value / 1024:.0f} KB"
    if name.endswith("_ns") or name == NS:
        for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
            if value >= size:
                return f"{value / size:.3g} {unit}"
        return f"{value:.3g} ns"
    return f"{value:,.0f}" if value == int(value) else f"{value:.1f}"


def label(entry, comparing_settings):
    if comparing_settings:
        return ", ".join(f"{name}={value}" for name, value in entry["set"].items() if name in comparing_settings)
    return entry["backend"]


def keep_built(options, program):
    """Without the backends that this build does not have."""
    if "--compare" not in options:
        return options
    at = options.index("--compare") + 1
    words = subprocess.run([program, options[0], "--backend", "?"], capture_output=True, text=True).stderr.split("one of ")[-1]
    built = [name.strip() for name in words.split(",")]
    kept = [name for name in options[at].split(",") if name in built]
    return options[:at] + [",".join(kept)] + options[at + 1:]


def measure(program, options, runs):
    with tempfile.NamedTemporaryFile(suffix=".json") as f:
        done = subprocess.run([program, *keep_built(options, program), "--runs", str(runs), "--json", f.name],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0 and options[0] != "idle":
            sys.exit(f"{' '.join(options)}: {done.stderr.strip()}")
        return json.load(open(f.name))


def table(result, columns, settings):
    main = columns[0]
    rows = [["", *columns, "lowest..highest", "to the first"]]
    first = result["runs"][0].get(main)
    for entry in result["runs"]:
        value, spread = entry.get(main), entry["spread"]
        ratio = f"{value / first:.2f}x" if first else "-"
        rows.append([label(entry, settings), *(human(c, entry.get(c)) for c in columns),
                     f"{human(main, spread['min'])}..{human(main, spread['max'])}", ratio])
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="reclaim-scale")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", help="one table by name: " + ", ".join(t[0] for t in TABLES))
    arguments = parser.parse_args()
    out, machine = [], None
    for name, heading, why, options, columns in TABLES:
        if arguments.only not in (None, name):
            continue
        print(f"figures: {name}", file=sys.stderr)
        result = measure(arguments.program, options, arguments.runs)
        machine = result["machine"]
        settings = [options[options.index("--compare-set") + 1].split("=")[0]] if "--compare-set" in options else []
        command = "reclaim-scale " + " ".join(options)
        out.append(f"## {heading}\n\n{why}\n\n`{command}`\n\n{table(result, columns, settings)}\n")
    if not out:
        parser.error(f"no table is called {arguments.only}")
    words = (f"{machine.get('model', machine['architecture'])}, {machine['cpus']} processors, "
             f"{machine['memory_bytes'] / 2**30:.0f} GiB, Linux {machine['kernel']}, glibc {machine['libc']}, "
             f"load {os.getloadavg()[1]:.1f} at the end")
    print(INTRO.format(runs=arguments.runs, machine=words))
    print("\n".join(out), end="")


main()
