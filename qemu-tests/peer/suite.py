#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The conformance suite: a raw TCP peer tests the device, row by row.

suite.py run [--driver siw|c-siw] [--after RESULTS] RESULTS [ROW...]
    Makes a veth pair with the device on one end and the peer, in a network namespace of its own, on the other, and
    runs all rows, or those named (with * and ?). Writes a JSON line to RESULTS before and after each. --after leaves
    out the rows that were begun in these results, the last of which may have crashed the kernel.
suite.py list
suite.py report OURS C-SIW
    Prints the table that is kept as CONFORMANCE.md."""

import argparse
import collections
import fnmatch
import gc
import glob
import importlib
import itertools
import json
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import time
import traceback

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, HERE)

from rows import ROWS, section_key  # noqa: E402

NETNS, NETDEV, FAR = "peer", "cv0", "cv1"
HERE4, THERE4 = "10.80.0.1", "10.80.0.2"
DEVICE = "siw_cv"


def load_rows():
    for path in sorted(glob.glob(f"{HERE}/rows_*.py")):
        importlib.import_module(os.path.basename(path)[:-3])


def command(*args, check=True):
    return subprocess.run(args, check=check, stdout=subprocess.PIPE, text=True).stdout


class Bed:
    """The driver, loaded with some parameters, its device, and the peer's namespace."""
    exercised = collections.Counter()

    def __init__(self, driver, params):
        import target
        self.driver = driver
        self.down()
        command("ip", "netns", "add", NETNS)
        command("ip", "link", "add", NETDEV, "type", "veth", "peer", "name", FAR, "netns", NETNS)
        command("ip", "addr", "add", f"{HERE4}/24", "dev", NETDEV)
        command("ip", "-n", NETNS, "addr", "add", f"{THERE4}/24", "dev", FAR)
        command("ip", "link", "set", NETDEV, "up")
        command("ip", "-n", NETNS, "link", "set", FAR, "up")
        command("ip", "-n", NETNS, "link", "set", "lo", "up")
        command("insmod", f"{os.environ['OUT']}/mod/{driver}.ko", *params.split())
        command("rdma", "link", "add", DEVICE, "type", "siw", "netdev", NETDEV)
        self.setup = target.Setup(HERE4, THERE4, f"/run/netns/{NETNS}", FAR)
        self.bystander = Bystander(self.setup)
        self.empty = self.left()

    @staticmethod
    def down():
        # The objects of a dead row may still be going away, so rmmod may have to wait.
        limit = time.monotonic() + 30
        while os.path.isdir("/sys/module/siw") and time.monotonic() < limit:
            command("rmmod", "siw", check=False)
        if os.path.exists(f"/sys/class/net/{NETDEV}"):
            command("ip", "link", "del", NETDEV)
        if os.path.exists(f"/run/netns/{NETNS}"):
            command("ip", "netns", "del", NETNS)

    def close(self):
        self.bystander.close()
        for line in command("rdma", "statistic", "show", "link", f"{DEVICE}/1", check=False).splitlines():
            words = line.split()
            counters = dict(zip(words, words[1:]))
            for words, names in EXERCISED.items():
                self.exercised[words] += sum(int(counters.get(name, 0)) for name in names)
        self.down()

    @staticmethod
    def left():
        """The kernel's summary of the device's objects, and the number of TCP connections of its address that are
        neither listening nor over."""
        with open("/proc/net/tcp", encoding="ascii") as f:
            states = [line.split()[3] for line in f.readlines()[1:]
                      if line.split()[1].startswith(HERE4_HEX)]
        return objects(), sum(state not in ("06", "0A") for state in states)

    def nothing_left(self, timeout):
        limit = time.monotonic() + timeout
        while (left := self.left()) != self.empty:
            if time.monotonic() > limit:
                line = next((line for line in command("rdma", "resource", "show").splitlines() if DEVICE in line), "")
                return f"left behind: {line.split(':', 1)[-1].strip()}, {left[1]} TCP connections, was {self.empty[1]}"
            time.sleep(0.05)
        return ""


def objects():
    """The kernel's summary of the device's objects, as raw bytes. Running rdma(8) for each row would take longer
    than most rows."""
    nldev_res_get = 5 << 10 | 9
    dump, done = 0x301, 3
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 20) as sock:
        sock.send(struct.pack("=IHHII", 16, nldev_res_get, dump, 0, 0))
        found = b""
        while True:
            data = sock.recv(1 << 16)
            while data:
                length, kind = struct.unpack("=IH", data[:6])
                if kind <= done:
                    assert found, f"the kernel knows no device {DEVICE}"
                    return found
                if DEVICE.encode() in data[16:length]:
                    found += data[16:length]
                data = data[-(-length // 4) * 4:]


EXERCISED = {"connections": ("active_connects", "passive_connects"), "FPDUs": ("rx_fpdus", "tx_fpdus"),
             "bytes": ("rx_bytes", "tx_bytes"), "Terminates": ("tx_terminate", "rx_terminate")}
HERE4_HEX = "".join(f"{int(byte):02X}" for byte in reversed(HERE4.split(".")))


class Bystander:
    """A connection in a process of its own, which is independent of all rows and must go on working."""

    def __init__(self, setup):
        ours, theirs = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(theirs[0])
            os.close(ours[1])
            self._serve(setup, ours[0], theirs[1])
        os.close(ours[0])
        os.close(theirs[1])
        self.ask, self.answer = ours[1], theirs[0]
        if trouble := self.trouble():
            raise RuntimeError(f"the bystander's connection does not come up: {trouble}")

    @staticmethod
    def _serve(setup, ask, answer):
        import target
        try:
            t = target.Target(setup)
            conn = t.passive()
            mr = t.mr(64)
            while os.read(ask, 1):
                conn.echo_with(mr)
                os.write(answer, b"\n")
        except BaseException as e:  # pylint: disable=broad-except
            traceback.print_exc()
            os.write(answer, (why(e) + "\n").encode())
        os._exit(0)

    def trouble(self):
        """Sends an echo. Returns "", or what is wrong."""
        os.write(self.ask, b"?")
        if not select.select([self.answer], [], [], 30)[0]:
            return "the bystander does not answer"
        return os.read(self.answer, 1000).decode().strip()

    def close(self):
        os.close(self.ask)
        os.waitpid(self.pid, 0)
        os.close(self.answer)


class KernelLog:
    """The complaints of the kernel."""
    BAD = re.compile(r"BUG:|WARNING:|UBSAN:|Oops|blocked for more than|refcount_t")

    def __init__(self):
        self.fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        os.lseek(self.fd, 0, os.SEEK_END)

    def complaint(self):
        """The first complaint since the last call, or ""."""
        found = ""
        while True:
            try:
                line = os.read(self.fd, 8192).decode(errors="replace").split(";", 1)[-1].split("\n")[0]
            except BlockingIOError:
                return found
            except BrokenPipeError:
                continue  # some were overwritten
            if not found and self.BAD.search(line):
                found = f"kernel: {line.strip()}"


def why(error):
    """The error in one line."""
    text = str(error).strip() or type(error).__name__
    if not isinstance(error, AssertionError):
        text = f"{type(error).__name__}: {text}"
    elif not str(error):
        frame = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{os.path.basename(frame.filename)}:{frame.lineno}: {frame.line}"
    return " ".join(text.split())[:160]


class Running:
    """A row in a process of its own, which takes all its objects along when it ends."""

    def __init__(self, bed, row):
        import target
        self.row, self.begin = row, time.monotonic()
        self.reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            text = ""
            try:
                gc.disable()
                if row.stock:
                    os.environ.pop("RDMAV_DRIVERS", None)
                t = target.Target(bed.setup)
                row.test(t)
                t.close()
            except BaseException as e:  # pylint: disable=broad-except
                text = why(e)
                traceback.print_exc()
            os.write(writing, (text + "\n").encode())
            os._exit(0)
        os.close(writing)

    def outcome(self):
        """("", "FAIL" or "hang"; and why)"""
        left = self.begin + self.row.timeout - time.monotonic()
        if select.select([self.reading], [], [], max(left, 0))[0]:
            text = os.read(self.reading, 1000).decode().strip()
        else:
            text = f"not over after {self.row.timeout} s"
            os.kill(self.pid, signal.SIGKILL)
        os.close(self.reading)
        for _ in range(300):
            if os.waitpid(self.pid, os.WNOHANG)[0]:
                return ("FAIL" if text else "pass"), text
            time.sleep(0.1)
        return "hang", text or "the process cannot be ended"


def aftermath(bed, log):
    """What is wrong after a row."""
    left = bed.nothing_left(15 if bed.driver == "siw" else 5)
    trouble = bed.bystander.trouble()
    return log.complaint() or left or (f"bystander: {trouble}" if trouble else "")


def wanted(patterns):
    if not patterns:
        return list(ROWS)
    names = [name for name in ROWS if any(fnmatch.fnmatch(name, p) for p in patterns)]
    if not names:
        sys.exit("no such row")
    return names


def run(args):
    rows = [ROWS[name] for name in wanted(args.rows)]
    rows.sort(key=lambda row: row.params)
    if args.after:
        rows = [row for row in rows if row.name not in begun(args.after)]
    failed = passed = deviating = 0
    start = time.monotonic()
    log = KernelLog()
    with open(args.results, "a", encoding="utf-8") as results:
        def note(**what):
            results.write(json.dumps(what) + "\n")
            results.flush()
            os.fsync(results.fileno())

        for params, group in itertools.groupby(rows, key=lambda row: row.params):
            if params and args.driver != "siw":
                for row in group:
                    note(row=row.name, result="n/a", why=f"has no {params.split('=')[0]}")
                continue
            bed = Bed(args.driver, params)
            group = list(group)
            waiting = [row for row in group if row.waits]
            for together in [[row] for row in group if not row.waits] + ([waiting] if waiting else []):
                for row in together:
                    note(begin=row.name)
                outcomes = []
                for running in [Running(bed, row) for row in together]:
                    outcomes.append((running, *running.outcome()))
                wrong = "" if any(o[1] == "hang" for o in outcomes) else aftermath(bed, log)
                for running, result, text in outcomes:
                    row, took = running.row, time.monotonic() - running.begin
                    if wrong and (result == "pass" or wrong.startswith("kernel:")):
                        result, text = "FAIL", wrong
                    elif args.driver == "siw" and row.deviation:
                        result, text = (("deviation", row.deviation) if result == "FAIL" else
                                        ("FAIL", "is said to deviate, but does not"))
                    note(row=row.name, result=result, why=text)
                    print(f"{result:9} {row.name:34} {took:6.2f} s  {text}", flush=True)
                    passed += result == "pass"
                    deviating += result == "deviation"
                    failed += result in ("FAIL", "hang")
                if any(o[1] == "hang" for o in outcomes):
                    sys.exit(3)
                if wrong:
                    bed.close()
                    bed = Bed(args.driver, params)
            bed.close()
        note(end=True)
    for words, n in Bed.exercised.items():
        print(f"# {n} {words}")
    print(f"{passed} pass, {deviating} known deviations, {failed} fail; {time.monotonic() - start:.0f} s")
    if failed and args.driver == "siw":
        sys.exit(1)


def lines_of(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def begun(path):
    return {name for line in lines_of(path) for name in (line.get("begin"), line.get("row"))}


def report(args):
    def read(path):
        lines = lines_of(path)
        done = {line["row"]: line for line in lines if "row" in line}
        for name in [line["begin"] for line in lines if "begin" in line]:
            done.setdefault(name, {"row": name, "result": "crash", "why": "the kernel did not survive it"})
        return done

    def cell(line):
        if not line:
            return "not run"
        text = line["why"].replace("|", "\\|")
        return line["result"] + (f": {text}" if text else "")

    ours, theirs = read(args.ours), read(args.theirs)
    rows = sorted(ROWS.values(), key=section_key)

    def count(results, *kinds):
        return sum(results.get(row.name, {}).get("result") in kinds for row in rows)

    print(f"""<!-- SPDX-License-Identifier: GPL-2.0 -->
# Conformance

Written by `peer/suite.py`, which the case `conformance` runs. A raw TCP peer tests each row against the device, and checks the
data on the wire, completions, events and memory. After every row a bystander's connection must work as before, and nothing
may be left behind.

| | pass | known deviation | fail | kernel crashed or hung | not applicable |
|---|---|---|---|---|---|
| this driver | {count(ours, 'pass')} | {count(ours, 'deviation')} | {count(ours, 'FAIL')} | {count(ours, 'crash', 'hang')} | {count(ours, 'n/a')} |
| C siw | {count(theirs, 'pass')} | 0 | {count(theirs, 'FAIL')} | {count(theirs, 'crash', 'hang')} | {count(theirs, 'n/a')} |

"MUST" and "SHOULD" are the RFC's; "own" is a promise of this driver beyond it. Many rows fail on C siw for one reason: on a
little-endian machine it swaps the halves of a Terminate's first octet (2/1/04 is 1/2/04), and its Terminates carry no headers.

| RFC section | | requirement | row | this driver | C siw |
|---|---|---|---|---|---|""")
    for row in rows:
        print(f"| {row.section} | {row.kind} | {row.requirement} | `{row.name}` | {cell(ours.get(row.name))} | "
              f"{cell(theirs.get(row.name))} |")


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(required=True)
    sub = commands.add_parser("run")
    sub.add_argument("--driver", default="siw")
    sub.add_argument("--after", metavar="RESULTS")
    sub.add_argument("results")
    sub.add_argument("rows", nargs="*")
    sub.set_defaults(call=run)
    sub = commands.add_parser("list")
    sub.set_defaults(call=lambda args: print("\n".join(ROWS)))
    sub = commands.add_parser("report")
    sub.add_argument("ours")
    sub.add_argument("theirs")
    sub.set_defaults(call=report)
    args = parser.parse_args()
    if getattr(args, "driver", "siw") != "siw":
        # The time-outs of C siw are shorter, and many of its rows run into this one.
        os.environ["PATIENCE"] = "12"
    load_rows()
    args.call(args)


main()
