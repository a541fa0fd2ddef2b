#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures everything that docs/figures.md shows, and writes that page.

Usage: figures.py RECLAIM_SCALE [--runs N] [--only NAME,..] > docs/figures.md     progress goes to stderr

Takes about ten minutes with 9 runs. Do not use the machine for anything else meanwhile.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

INTRO = """# Figures

Measured by `tests/bench/figures.py`, which also wrote this page: {runs} runs of each line in turn after a warm-up unless a table
says otherwise, medians; `lowest..highest` is the spread of the first column. Machine: {machine}. See reclaim-scale(1) for what
is measured how. POLL, DRAIN, SCALE, SYNC and PURGE are the kernel's mail threads that reclaimd takes its ideas from.

A figure of this page is a fact about this machine on one day. What a change costs or gains is told by a comparison in one run,
like those here, not by this page's numbers of another day.
"""

# What follows from the tables for who has to choose, in words: the page's last section, written by hand.
CHOICE = """## Who should wake a waiter

`wake-from-gp=yes` is for few waiters who are to be back soon: behind another client's callbacks a call takes a sixth of the
time that it takes with `no`, and alone it saves one hop to a worker. `no` is for many: the slowest of a thousand come back
sooner, as the grace-period thread begins the next grace period instead of waking. `auto` is the first of these until
`wake-flood` are in flight, and the second from there.

The source left its switch off because slower waiters share a grace period with more updates, which makes updates cheap. Here
that is not to be seen: objects a grace period are equal within 10 %, and sixteen waiters who call again at once take fewer
grace periods with `yes`, whose grace-period thread is busy waking meanwhile. `no` stays the default as it is in the source;
who measures his own load may choose.
"""

NS = "ns_per_object"
PEERS = "reclaim,malloc,ck-epoch,urcu-defer,dpdk-dq,urcu-call-rcu"
KFREE_COLUMNS = [NS, "client_cpu_ns", "daemon_cpu_ns", "batches", "footprint_bytes"]
FLOOD_INTERVAL_NS = 1e6  # the daemon's default
MODES = "wake-from-gp=no,yes,auto"


def to_first(figure):
    """A column: this row's figure by the first row's."""
    def ratio(entry, first):
        return entry[figure] / first[figure] if first.get(figure) and figure in entry else None
    return ("to the first" if figure == NS else f"{figure} to the first", ratio)


def by(figure, divisor, heading=None):
    """A column: two figures of one row."""
    def ratio(entry, first):
        return entry[figure] / entry[divisor] if entry.get(divisor) and figure in entry else None
    return (heading or f"{figure} / {divisor}", ratio)


def evenness(figure):
    """A column: the highest run by the lowest."""
    def ratio(entry, first):
        spread = entry["spreads"].get(figure)
        return spread["max"] / spread["min"] if spread and spread["min"] else None
    return (f"{figure} highest / lowest", ratio)


def first_free_bound(entry, first):
    return entry["first_free_ns"] / (2 * FLOOD_INTERVAL_NS + entry["gp_ns"])


def table(name, heading, words, commands, columns, ratios=None, runs=None):
    """commands: the options of one, or several of them, each after a word for its rows."""
    if isinstance(commands[0], str):
        commands = [("", commands)]
    return {"name": name, "heading": heading, "words": words, "commands": commands, "columns": columns,
            "ratios": [to_first(columns[0])] if ratios is None else ratios, "runs": runs}


TABLES = [
    table("in-order", "Allocate and free in order", "8000 objects of 32 bytes, then as many deferred frees, until all are freed.",
          ["kfree", "--kfree-loops", "500", "--compare", PEERS], KFREE_COLUMNS),
    table("random-1000", "In random order over 1,000 live objects", "One object a record, for the daemon the dear case.",
          ["kfree", "--kfree-loops", "200", "--random", "1000", "--compare", PEERS], KFREE_COLUMNS),
    table("random-100000", "In random order over 100,000 live objects", "The same where caches do not hold the window.",
          ["kfree", "--kfree-loops", "200", "--random", "100000", "--compare", PEERS], KFREE_COLUMNS),
    table("interleaved", "Interleaved", "SCALE's other shape: allocate one, free one.",
          ["kfree", "--kfree-loops", "500", "--interleaved", "--compare", PEERS], KFREE_COLUMNS),
    table("threads", "Sixteen threads", "POLL's shape: 16 threads, 8000 objects a loop, here in 4 processes.",
          ["kfree", "--kfree-nthreads", "16", "--kfree-nprocs", "4", "--kfree-loops", "200", "--compare",
           "reclaim,malloc,ck-epoch,urcu-call-rcu"], KFREE_COLUMNS),
    table("poll", "Batches that poll, or queue behind callbacks",
          "POLL: 16 threads, 10,000 loops of 8000 objects. The source saw 2704..5057 MB while each batch waited as a callback, and\n"
          "72..91 MB once it polled its grace period. Asked for: polled, at most 64 MB. Nobody else queues callbacks here, but a batch\n"
          "behind callbacks waits for a worker's turn, and what comes meanwhile gathers up to client-pending-max (256 MB here).",
          ["kfree", "--kfree-nthreads", "16", "--kfree-loops", "10000", "--kfree-alloc-num", "8000", "--compare-set",
           "gp-wait=poll,callback"],
          ["footprint_bytes", NS, "total_ns", "batches", "grace_periods"], [to_first("footprint_bytes"), to_first(NS)], runs=3),
    table("poll-fifo", "The same behind another client's callbacks",
          "POLL's own situation: another client keeps 100,000 entries in the callback FIFO, as the source's offloaded processors\n"
          "did. Asked for: polled, the footprint is at least 10 times smaller, and the time not longer. `other_bytes` is the other\n"
          "client's memory, which is not in the footprint.",
          ["kfree", "--kfree-nthreads", "16", "--kfree-loops", "3000", "--fifo-load", "100000", "--compare-set",
           "gp-wait=poll,callback"],
          ["footprint_bytes", NS, "batches", "grace_periods", "callbacks_ahead", "fifo_entry_ns", "other_bytes"],
          [to_first("footprint_bytes"), to_first(NS)], runs=5),
    table("scale", "With and without batching",
          "SCALE: in the source batching cut the grace periods 4.3 to 4.7 times, and took 16 to 31 % more time and 3 to 4 times\n"
          "the memory. Asked for: `callbacks` (entries of the FIFO that ran) or grace periods cut at least 10 times, for no more\n"
          "time and memory (at most 1.10 times).",
          [("", ["kfree", "--kfree-loops", "500", "--compare-set", "batching=no,yes"]),
           ("interleaved ", ["kfree", "--kfree-loops", "500", "--interleaved", "--compare-set", "batching=no,yes"])],
          [NS, "footprint_bytes", "callbacks", "grace_periods", "batches"],
          [to_first(NS), to_first("footprint_bytes"), to_first("callbacks"), to_first("grace_periods")]),
    table("read", "A read section", "Lock, one dereference, unlock; one thread.",
          ["read", "--loops", "5", "--compare", "reclaim,urcu-memb,ck-epoch,dpdk-qsbr"], [NS]),
    table("poll-cost", "To ask for a grace period that is over",
          "`reclaim` is reclaim_gp_poll(), `reclaim-wait` reclaim_gp_wait(). Asked for: at most 4 times an acquire load of one word.",
          ["poll", "--loops", "5", "--compare", "load,reclaim,reclaim-wait"], [NS]),
    table("sync", "Synchronize",
          "`floor` is what no service in another process can beat: an eventfd wakes it, one membarrier, a futex wakes the caller;\n"
          "`urcu-memb` stays in its process. Nothing else runs.",
          [("", ["sync", "--compare", "floor,reclaim,urcu-memb"]),
           ("expedited ", ["sync", "--expedited", "--compare", "floor,reclaim"])],
          ["p50_ns", "p99_ns", "wakeups"], [to_first("p50_ns"), to_first("p99_ns")]),
    table("sync-callbacks", "Synchronize behind callbacks",
          "SYNC: on the source's phone the waiter's callback was the last of 3,613. Another client keeps about so many entries in\n"
          "the callback FIFO; `callbacks_ahead` is how many there were when a waiter's grace period ended, whatever woke it, and an\n"
          "entry takes `fifo_entry_ns` at most. Asked for: `yes` at least 50 % below `no`, at the median and at the 99th percentile.",
          ["sync", "--calls", "300", "--callbacks", "3613", "--compare-set", MODES],
          ["p50_ns", "p99_ns", "callbacks_ahead", "fifo_entry_ns"], [to_first("p50_ns"), to_first("p99_ns")]),
    table("sync-waiters", "Sixteen waiters", "Many waiters share a grace period; who wakes them?",
          ["sync", "--waiters", "16", "--nprocs", "4", "--calls", "500", "--compare-set", MODES],
          ["p50_ns", "p99_ns", "grace_periods", "direct_wakes", "worker_wakes", "fifo_wakes"]),
    table("sync-burst", "512 waiters at once",
          "All call at the same moment, once. Asked for: at most 40 membarriers for all of them together.",
          ["sync", "--waiters", "512", "--compare-set", MODES],
          ["membarriers", "grace_periods", "p50_ns", "p99_ns", "max_direct_wakes", "direct_wakes", "worker_wakes", "fifo_wakes"],
          [evenness("membarriers")]),
    table("sync-updates", "A thousand waiters beside a flood of updates",
          "SYNC left its switch off as slower waiters share a grace period with more updates. Another client defers 1,000 frees\n"
          "each millisecond in the same arena. Asked for: with `auto` as many objects a grace period as with `no` (within 10 %);\n"
          "and the grace-period thread wakes at most wake-direct (5) waiters at one end.",
          ["sync", "--waiters", "1000", "--calls", "50", "--updates", "1000", "--compare-set", MODES],
          ["objects_per_gp", "p50_ns", "p99_ns", "grace_periods", "max_direct_wakes", "direct_wakes", "worker_wakes", "fifo_wakes"]),
    table("sync-stalled", "Beside an arena whose reader stalls",
          "In each other block of calls a reader of another arena holds up a grace period there. Asked for: nobody here notices.",
          ["sync", "--calls", "4000", "--stalled-neighbour"],
          ["p50_ns", "alone_p50_ns", "p99_ns", "alone_p99_ns"], [by("p50_ns", "alone_p50_ns"), by("p99_ns", "alone_p99_ns")]),
    table("drain", "A trickle",
          "DRAIN: 1 to 6 frees each 8 ms for 5 s, at the source's old interval and at the one that it chose.",
          ["drain", "--duration", "5s", "--compare-set", "drain-interval=20ms,1s"],
          ["objects_per_page", "drains", "grace_periods", "wakeups", "daemon_cpu_ns"],
          [to_first("objects_per_page"), to_first("wakeups")], runs=3),
    table("drain-flood", "The first free of a flood",
          "DRAIN: a flood does not wait for the interval. Asked for: the first object is free within two flood-intervals (1 ms\n"
          "each) and a grace period.",
          ["drain", "--flood", "--duration", "2s"], ["first_free_ns", "first_free_p99_ns", "gp_ns", "calls"],
          [("first_free_ns / bound", first_free_bound)]),
    table("drain-footprint", "How even the footprint of a flood is",
          "DRAIN: ten runs took 64..156 MB before (2.4 times) and 66..94 MB after (1.4 times). Asked for: at most 1.3 times.",
          ["kfree", "--kfree-nthreads", "16", "--kfree-loops", "1000"], ["footprint_bytes", NS, "batches", "drains"],
          [evenness("footprint_bytes"), evenness(NS)], runs=10),
    table("purge", "Purges",
          "PURGE: 100,000 extents of 16 KiB by 4 processes; a purge is queued although one runs, or not. The source queued 30 works\n"
          "before and 15 after. Asked for: `no` queues at most half the works, punches at least 50 times fewer holes than there are\n"
          "extents (100,000), and takes no longer. At the default threshold of 64 MiB `no` often needs no purge at all here, so the\n"
          "second pair has one of 16 MiB. Ratios are to the first row of a pair.",
          [("", ["purge", "--compare-set", "purge-while-purging=yes,no"]),
           ("threshold 16M ", ["purge", "--set", "purge-threshold=16M", "--compare-set", "purge-while-purging=yes,no"])],
          ["purges_queued", "holes", NS, "footprint_bytes", "backed_bytes"],
          [to_first("purges_queued"), by("objects", "holes", "extents a hole"), to_first(NS)]),
    table("attach", "Attach", "Open an arena, get a lane, close.", ["attach"], [NS, "p50_ns", "p99_ns"], []),
    table("idle", "Idle", "Eight clients attached, nothing to do, 5 s.", ["idle", "--duration", "5s"], ["wakeups"], [], runs=3),
]


class Failure(Exception):
    """One table's; the others are measured nevertheless."""


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
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def label(entry, settings):
    """What tells a row from the others: the setting that is varied, else the backend."""
    if settings:
        return ", ".join(f"{name}={value}" for name, value in entry["set"].items() if name in settings)
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
            raise Failure(f"{' '.join(options)}: {done.stderr.strip()}")
        return json.load(open(f.name))


def rows_of(result, prefix, options, t):
    main, entries = t["columns"][0], result["runs"]
    for column in t["columns"]:
        if not any(column in entry for entry in entries):
            raise Failure(f"{t['name']}: nothing has a figure {column}")
    settings = [options[options.index("--compare-set") + 1].split("=")[0]] if "--compare-set" in options else []
    for entry in entries:
        spread = entry["spreads"].get(main)
        quotients = [ratio(entry, entries[0]) for _, ratio in t["ratios"]]
        yield [prefix + label(entry, settings), *(human(c, entry.get(c)) for c in t["columns"]),
               f"{human(main, spread['min'])}..{human(main, spread['max'])}" if spread else "-",
               *("-" if q is None else f"{q:.2f}x" for q in quotients)]


def section(t, program, runs):
    """One table with its words and commands; and the machine that it was measured on."""
    rows = [["", *t["columns"], "lowest..highest", *(heading for heading, _ in t["ratios"])]]
    commands = []
    for prefix, options in t["commands"]:
        result = measure(program, options, runs)
        rows += rows_of(result, prefix, options, t)
        commands.append("`reclaim-scale " + " ".join(options) + "`")
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    words = t["words"] + (f" ({runs} runs)" if t["runs"] else "")
    return f"## {t['heading']}\n\n{words}\n\n" + "  \n".join(commands) + "\n\n" + "\n".join(lines) + "\n", result["machine"]


def chosen(names, parser):
    known = [t["name"] for t in TABLES]
    for name in names or []:
        if name not in known:
            parser.error(f"no table is called {name}")
    return [t for t in TABLES if names is None or t["name"] in names]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="reclaim-scale")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--only", help="tables by name, with commas between: " + ", ".join(t["name"] for t in TABLES))
    arguments = parser.parse_args()
    out, machine, failed = [], None, False
    for t in chosen(arguments.only.split(",") if arguments.only else None, parser):
        began = time.monotonic()
        try:
            text, machine = section(t, arguments.program, t["runs"] if t["runs"] and arguments.runs > 1 else arguments.runs)
            out.append(text)
        except Failure as failure:
            print(f"figures: {failure}", file=sys.stderr)
            failed = True
        print(f"figures: {t['name']}, {time.monotonic() - began:.0f} s", file=sys.stderr)
    if not out:
        sys.exit(1)
    words = (f"{machine.get('model', machine['architecture'])}, {machine['cpus']} processors, "
             f"{machine['memory_bytes'] / 2**30:.0f} GiB, Linux {machine['kernel']}, glibc {machine['libc']}, "
             f"load {os.getloadavg()[1]:.1f} at the end")
    print(INTRO.format(runs=arguments.runs, machine=words))
    print("\n".join(out + [CHOICE] if CHOICE else out), end="")
    sys.exit(failed)


main()
