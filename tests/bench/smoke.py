#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs one TEST of reclaim-scale at a tiny size, as a user would, and checks its JSON and the arena's books.

Usage: smoke.py RECLAIM_SCALE TEST [BACKENDS]     RECLAIMD names the daemon

No time is judged here, only that every figure that the test promises is there and that the books add up.
"""
import json
import os
import subprocess
import sys
import tempfile
import xml.dom.minidom

ALWAYS = {"backend", "set"}
DAEMON = {"client_cpu_ns", "daemon_cpu_ns", "grace_periods", "batches", "drains", "objects_per_page", "wakeups",
          "purges_queued", "holes", "footprint_bytes", "callbacks", "membarriers", "direct_wakes", "worker_wakes",
          "fifo_wakes", "max_direct_wakes", "spreads"}
FREEING = {"objects", "total_ns", "freed_ns"}
LATENCY = {"p50_ns", "p99_ns", "calls"}

# Of each test: options, figures of every backend, figures of backend reclaim only.
TESTS = {
    "kfree": (["--kfree-nthreads", "3", "--kfree-nprocs", "2", "--kfree-loops", "4", "--kfree-alloc-num", "1000"],
              FREEING | {"ns_per_object", "client_cpu_ns", "footprint_bytes"}, DAEMON),
    "read": (["--loops", "2", "--pairs", "10000", "--nthreads", "2"],
             {"objects", "total_ns", "ns_per_object", "client_cpu_ns"}, DAEMON),
    "sync": (["--calls", "50", "--waiters", "2"], LATENCY | {"client_cpu_ns"}, DAEMON),
    "drain": (["--duration", "300ms"], FREEING, DAEMON),
    "purge": (["--purge-allocs", "2000", "--purge-burst", "100", "--nprocs", "2"], FREEING | {"ns_per_object"}, DAEMON),
    "idle": (["--duration", "100ms", "--clients", "3"], {"wakeups", "total_ns"}, set()),
    "poll": (["--loops", "2", "--polls", "10000"], {"objects", "total_ns", "ns_per_object"}, DAEMON),
    "attach": (["--loops", "20"], LATENCY | {"objects", "ns_per_object"}, DAEMON),
}


def fail(text):
    print(f"smoke: {text}")
    sys.exit(1)


def run(program, arguments, accepted=(0,)):
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    if done.returncode not in accepted:
        fail(f"{' '.join(arguments)}: exit {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def check_books(test, entry):
    """What was deferred is freed, nothing else was, and nothing is left."""
    if entry["backend"] != "reclaim" or "freed_objects" not in entry:
        return
    if entry["refused_records"] != 0:
        fail(f"{test}: {entry['refused_records']} records were refused")
    if entry["pending_objects"] != 0:
        fail(f"{test}: {entry['pending_objects']} objects are still pending after the barrier")
    if test in ("kfree", "drain", "purge") and entry["freed_objects"] != entry["objects"]:
        fail(f"{test}: {entry['objects']} objects deferred, {entry['freed_objects']} freed")


def check_entry(test, entry, backend):
    _, everybody, daemon_only = TESTS[test]
    wanted = ALWAYS | everybody | (daemon_only if backend.startswith("reclaim") else set())
    missing = wanted - set(entry)
    if missing:
        fail(f"{test}, {backend}: the JSON has no {', '.join(sorted(missing))}")
    if entry["backend"] != backend:
        fail(f"{test}: backend {entry['backend']} where {backend} was asked for")
    if "freed_ns" in entry and entry["freed_ns"] < entry["total_ns"]:
        fail(f"{test}, {backend}: all freed before the loops were through")
    if test == "kfree" and entry["objects"] != 3 * 4 * 1000:
        fail(f"kfree, {backend}: {entry['objects']} objects")
    check_books(test, entry)


def compare(program, test, backends, directory):
    """All backends in turn, with a JSON and a plot."""
    json_path, plot_path = os.path.join(directory, "out.json"), os.path.join(directory, "out.svg")
    arguments = [test, *TESTS[test][0], "--runs", "1", "--json", json_path, "--compare", ",".join(backends)]
    if test != "idle":  # which has 0 to draw, and may rightly fail on a machine that is not idle
        arguments += ["--plot", plot_path]
    text = run(program, arguments, accepted=(0, 1) if test == "idle" else (0,))
    with open(json_path) as f:
        result = json.load(f)
    if result["test"] != test or set(result) < {"test", "machine", "options", "runs", "ratios"}:
        fail(f"{test}: the JSON has keys {sorted(result)}")
    if len(result["runs"]) != len(backends):
        fail(f"{test}: {len(result['runs'])} entries for {len(backends)} backends")
    for entry, backend in zip(result["runs"], backends):
        check_entry(test, entry, backend)
    if len(backends) > 1:
        check_ratios(result, backends)
        for backend in backends:
            if backend not in text:
                fail(f"{test}: the table does not name {backend}")
    if test != "idle":
        xml.dom.minidom.parse(plot_path)


def check_ratios(result, backends):
    main = result["main_figure"]
    first, second = result["runs"][0][main], result["runs"][1][main]
    ratio = result["ratios"][f"{backends[0]}/{backends[1]}"]
    if abs(ratio - first / second) > 1e-6 * ratio:
        fail(f"ratio {ratio} is not {first} / {second}")


def single(program, test):
    """One run for people; kfree ends with the source's own line."""
    text = run(program, [test, *TESTS[test][0]], accepted=(0, 1) if test == "idle" else (0,))
    lines = text.splitlines()
    if not lines:
        fail(f"{test}: prints nothing")
    if test == "kfree" and not (lines[-2].startswith("Total time taken by all kfree'ers: ")
                                and all(word in lines[-2] for word in (" ns, loops: 4, batches: ", "memory footprint: "))
                                and lines[-1].startswith("All freed after: ")):
        fail(f"kfree: {lines[-2:]}")


def shapes(program, directory):
    """kfree's other shapes free as many objects as they say."""
    path = os.path.join(directory, "shape.json")
    for shape in (["--interleaved"], ["--random", "100"], ["--kfree-mult", "8"]):
        run(program, ["kfree", *TESTS["kfree"][0], *shape, "--json", path])
        with open(path) as f:
            check_entry("kfree", json.load(f)["runs"][0], "reclaim")


def one(program, arguments, directory):
    """The figures of one run, whose books add up."""
    path = os.path.join(directory, "one.json")
    run(program, [*arguments, "--json", path])
    with open(path) as f:
        entry = json.load(f)["runs"][0]
    check_books(arguments[0], entry)
    return entry


def need(entry, what, **conditions):
    for name, is_right in conditions.items():
        if name not in entry or not is_right(entry[name]):
            fail(f"{what}: {name} is {entry.get(name, 'absent')}")


def neighbours_of_sync(program, directory):
    """Who wakes whom, and what the other clients of the daemon are there for."""
    entry = one(program, ["sync", "--calls", "10", "--callbacks", "500"], directory)
    need(entry, "sync --callbacks", callbacks_ahead=lambda n: 250 <= n <= 1000, fifo_entry_ns=lambda n: n > 0,
         callbacks=lambda n: n > 500, other_bytes=lambda n: n > 0, calls=lambda n: n == 10)
    entry = one(program, ["sync", "--waiters", "100", "--set", "wake-from-gp=yes"], directory)
    need(entry, "sync --waiters 100", calls=lambda n: n == 100, max_direct_wakes=lambda n: 1 <= n <= 5,
         membarriers=lambda n: 1 <= n <= 100, fifo_wakes=lambda n: n == 0)
    if entry["direct_wakes"] + entry["worker_wakes"] != 100:
        fail(f"sync --waiters 100: {entry['direct_wakes']} + {entry['worker_wakes']} were woken")
    path = os.path.join(directory, "updates.json")
    run(program, ["sync", "--calls", "200", "--updates", "1000", "--json", path])  # they go on as the books are read
    with open(path) as f:
        need(json.load(f)["runs"][0], "sync --updates", objects_per_gp=lambda n: n > 0, freed_objects=lambda n: n > 0)
    entry = one(program, ["sync", "--calls", "40", "--stalled-neighbour"], directory)
    need(entry, "sync --stalled-neighbour", calls=lambda n: n == 20, p50_ns=lambda n: n > 0,
         alone_p50_ns=lambda n: n > 0, alone_p99_ns=lambda n: n > 0)


def fifo_load_of_kfree(program, directory):
    """The other client's memory and objects are not the flood's."""
    entry = one(program, ["kfree", *TESTS["kfree"][0], "--fifo-load", "2000", "--set", "gp-wait=callback"], directory)
    check_entry("kfree", entry, "reclaim")
    # looked at each 10 ms, of which so short a run has few: the length may have been 0 just then
    need(entry, "kfree --fifo-load", other_bytes=lambda n: n > 0, callbacks=lambda n: n > 0,
         callbacks_ahead=lambda n: n >= 0)


def flood_of_drain(program, directory):
    entry = one(program, ["drain", "--flood", "--duration", "100ms"], directory)
    need(entry, "drain --flood", first_free_ns=lambda n: n > 0, first_free_p99_ns=lambda n: n > 0, gp_ns=lambda n: n > 0,
         calls=lambda n: n >= 1)


def settings(program, directory):
    """A setting varied and a setting fixed both reach the daemon and the JSON."""
    path = os.path.join(directory, "set.json")
    run(program, ["kfree", *TESTS["kfree"][0], "--set", "batches=1", "--compare-set", "gp-wait=poll,callback", "--runs", "1",
                  "--json", path])
    with open(path) as f:
        sets = [entry["set"] for entry in json.load(f)["runs"]]
    if sets != [{"batches": "1", "gp-wait": "poll"}, {"batches": "1", "gp-wait": "callback"}]:
        fail(f"--set and --compare-set: {sets}")
    done = subprocess.run([program, "kfree", "--set", "no-such-parameter=1"], capture_output=True, text=True)
    if done.returncode != 2 or "no-such-parameter" not in done.stderr or done.stderr.count("\n") != 1:
        fail(f"--set of an unknown parameter: exit {done.returncode}: {done.stderr}")
    done = subprocess.run([program, "kfree", "--compare-set", "batches=1,0"], capture_output=True, text=True)
    if done.returncode != 2 or not done.stderr.startswith("reclaim-scale: batches: '0'") or done.stdout:
        fail(f"--compare-set of a wrong value: exit {done.returncode}: {done.stderr}{done.stdout}")
    for option in ("--json", "--plot"):
        done = subprocess.run([program, "kfree", option, f"{directory}/none/file"], capture_output=True, text=True)
        if done.returncode != 1 or f"{directory}/none/file" not in done.stderr or done.stdout:
            fail(f"{option} that cannot be written: exit {done.returncode}: {done.stderr}{done.stdout}")


def main():
    program, test = sys.argv[1:3]
    backends = sys.argv[3].split(",") if len(sys.argv) > 3 else ["reclaim"]
    with tempfile.TemporaryDirectory() as directory:
        os.environ["TMPDIR"] = directory
        compare(program, test, backends, directory)
        single(program, test)
        if test == "kfree":
            shapes(program, directory)
            settings(program, directory)
            fifo_load_of_kfree(program, directory)
        elif test == "sync":
            neighbours_of_sync(program, directory)
        elif test == "drain":
            flood_of_drain(program, directory)
        left = [name for name in os.listdir(directory) if name.startswith("reclaim-scale")]
        if left:
            fail(f"{test}: left {left} behind")
    print(f"smoke: {test} is fine")


main()
