# SPDX-License-Identifier: GPL-2.0
"""Runs test cases between two QEMU guests on the stock Debian kernel.

A case is a shell file with a header ("#: key value") and two functions, a and b,
one per guest; guest/lib.sh has what they can call. All cases of a run share one
boot of the guests: the driver is loaded before and unloaded after each of them.
A case fails if a half of it fails or does not end in time, if anything is left
behind, or if the kernel of a guest logs a warning."""

import argparse
import atexit
import ctypes
import fcntl
import os
import re
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.realpath(__file__))
TOP = os.path.dirname(HERE)
CASES = os.path.join(HERE, "cases")
GUESTS = ("a", "b")
BOOT_TIMEOUT = 180
STEP_TIMEOUT = 120  # loading or unloading a driver
SKIPPED = 77  # exit status of a half that cannot run here

# Log levels 0 to 4 (warning) fail a case, and these texts at any level.
BAD = re.compile(
    r"BUG:|WARNING:|Oops|general protection|Call Trace|blocked for more than|\bstall|"
    r"refcount|leak|lockdep|circular locking|UBSAN|KASAN|unable to handle|soft lockup|"
    r"scheduling while atomic|sleeping function|unregister_netdevice: waiting|Kernel panic",
    re.I,
)
# What a stock kernel says in a healthy guest.
HARMLESS = re.compile("|".join((
    r"qemu-tests: ",
    r"loading out-of-tree module taints kernel",
    r"module verification failed: signature and/or required key missing",
    r"speed is unknown, defaulting to 1000",
    # C siw, of what a peer tells it.
    r"siw: got TERMINATE|siw: siw_rx_umem: .* bogus addr",
    # The core's own work of a port event, when the netdev is gone before it runs.
    r"ib_query_port failed \(-19\)",
)))
# Before any driver is loaded there is only the stock kernel, whose clocks complain
# in a guest on a busy machine: there the texts count, not the levels.
HARMLESS_AT_BOOT = re.compile("BIOS")


def tsc_khz():
    """The TSC's rate as a kernel parameter. TCG passes the TSC of this machine through, and a guest on a
    busy machine measures it wrong by a factor: then its clock runs fast and time-outs strike at random."""
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
        bogomips = re.search(r"^bogomips\s*:\s*([0-9.]+)", f.read(), re.M)
    # Twice the TSC's rate, whatever the CPU's is at the moment.
    return f"tsc_early_khz={round(float(bogomips[1]) * 500)}" if bogomips else ""


class GuestDied(Exception):
    pass


class OutOfTime(Exception):
    pass


def say(text):
    print(text, flush=True)


def run(*cmd, **kwargs):
    subprocess.run(cmd, check=True, stdout=subprocess.DEVNULL, **kwargs)


def output(*cmd):
    """The last line that a set-up script prints; its progress passes through."""
    res = subprocess.run(cmd, stdout=subprocess.PIPE, text=True)
    if res.returncode:
        sys.exit(res.returncode)
    return res.stdout.strip().splitlines()[-1]


class Case:
    def __init__(self, path, name, driver):
        self.path, self.name = path, name
        self.about, self.drivers, self.params, self.timeout = "", ["siw", "siw"], [], 300
        with open(path) as f:
            for line in f:
                m = re.match(r"#: (\w+) (.*)", line)
                if not m:
                    continue
                key, value = m.groups()
                if key == "about":
                    self.about = value
                elif key == "drivers":
                    self.drivers = value.split()
                elif key == "params":
                    self.params = value.split()
                elif key == "timeout":
                    self.timeout = int(value)
                else:
                    sys.exit(f"{path}: unknown key {key}")
        if len(self.drivers) != 2:
            sys.exit(f"{path}: drivers must name two, for guests a and b")
        self.drivers = [driver if d == "siw" else d for d in self.drivers]


def find_cases():
    found = []
    for folder, _, files in os.walk(CASES):
        found += [os.path.join(folder, f) for f in files if f.endswith(".case")]
    return {os.path.relpath(p, CASES)[: -len(".case")]: p for p in sorted(found)}


def pick_cases(wanted, everything, driver):
    known = find_cases()
    if everything:
        return [Case(p, n, driver) for n, p in known.items()]
    cases = []
    for word in wanted:
        names = [n for n in known if n == word or n.startswith(word.rstrip("/") + "/")]
        if names:
            cases += [Case(known[n], n, driver) for n in names]
        elif os.path.isfile(word):
            name = os.path.basename(word).removesuffix(".case")
            cases.append(Case(os.path.realpath(word), name, driver))
        else:
            sys.exit(f"no case {word}; --list shows them")
    return cases


class Network:
    """A bridge with two taps in a network namespace of this process, which goes
    with it. vnet_hdr gives the guests TSO and checksum offload."""

    def __init__(self, sockets):
        self.sockets = sockets
        self.taps = False
        clone_newnet = 0x40000000
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(clone_newnet):
            self.fall_back(os.strerror(ctypes.get_errno()))
            return
        try:
            run("ip", "link", "add", "br0", "type", "bridge", "stp_state", "0", "forward_delay", "0")
            for g in GUESTS:
                run("ip", "tuntap", "add", f"tap-{g}", "mode", "tap", "vnet_hdr")
                run("ip", "link", "set", f"tap-{g}", "master", "br0", "up")
            run("ip", "link", "set", "br0", "up")
            self.taps = True
        except (subprocess.CalledProcessError, OSError) as e:
            self.fall_back(str(e))

    def fall_back(self, why):
        say(f"warning: no taps here ({why}): the guests get a socket network, without TSO "
            "and checksum offload; figures are not comparable")

    def netdev(self, guest):
        if self.taps:
            return f"tap,id=net,ifname=tap-{guest},script=no,downscript=no,vnet_hdr=on"
        server = "on" if guest == "a" else "off"
        return f"stream,id=net,server={server},addr.type=unix,addr.path={self.sockets}/net"


class Guests:
    def __init__(self, image, out, network, sockets):
        self.image, self.out, self.network, self.sockets = image, out, network, sockets
        self.procs, self.conns, self.buffers = {}, {}, {}
        self.boots = 0
        atexit.register(self.kill)

    def kill(self):
        for conn in self.conns.values():
            conn.close()
        for proc in self.procs.values():
            proc.kill()
            proc.wait()
        self.procs, self.conns = {}, {}

    def boot(self):
        self.kill()
        self.boots += 1
        start = time.monotonic()
        for g in GUESTS:
            ctl = f"{self.sockets}/ctl-{g}"
            if os.path.exists(ctl):
                os.unlink(ctl)
            console = f"{self.out}/console-{g}" + (f".{self.boots}" if self.boots > 1 else "")
            mac = "52:54:00:77:00:0" + g
            append = (
                "console=ttyS0 quiet loglevel=5 panic=-1 net.ifnames=0 no_timer_check tsc=reliable "
                f"{tsc_khz()} siw.guest={g}"
            )
            cmd = [
                "qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", "1536",
                "-nodefaults", "-no-reboot", "-display", "none", "-serial", f"file:{console}",
                "-kernel", f"{self.image}/vmlinuz", "-initrd", f"{self.image}/initrd",
                "-append", append,
                "-drive", f"file={self.image}/root.img,if=none,id=root,format=raw,readonly=on",
                "-device", "virtio-blk-pci,drive=root", "-device", "virtio-rng-pci",
                "-netdev", self.network.netdev(g), "-device", f"virtio-net-pci,netdev=net,mac={mac}",
                "-virtfs", f"local,path={HERE},mount_tag=tests,security_model=none,readonly=on",
                "-virtfs", f"local,path={self.out},mount_tag=out,security_model=none",
                "-chardev", f"socket,id=ctl,path={ctl},server=on,wait=off",
                "-device", "virtio-serial-pci", "-device", "virtserialport,chardev=ctl,name=siw.ctl",
            ]
            with open(f"{self.out}/qemu-{g}", "a") as log:
                self.procs[g] = subprocess.Popen(cmd, stdin=subprocess.DEVNULL, stdout=log,
                                                 stderr=log, preexec_fn=die_with_parent)
            self.conns[g] = self.connect(g, ctl)
            self.buffers[g] = b""
        self.answers("ready", BOOT_TIMEOUT)
        return time.monotonic() - start

    def connect(self, guest, path):
        conn = socket.socket(socket.AF_UNIX)
        end = time.monotonic() + 30
        while True:
            try:
                conn.connect(path)
                return conn
            except (FileNotFoundError, ConnectionRefusedError):
                if self.procs[guest].poll() is not None:
                    with open(f"{self.out}/qemu-{guest}") as log:
                        raise GuestDied(f"QEMU did not start: {log.read().strip()}")
                if time.monotonic() > end:
                    raise OutOfTime("QEMU did not start")
                time.sleep(0.05)

    def send(self, line, guests=GUESTS):
        for g in guests:
            try:
                self.conns[g].sendall(line.encode() + b"\n")
            except OSError:
                raise GuestDied(f"guest {g} died")

    def answers(self, word, timeout, first_failure=False):
        """The status with which each guest answers WORD; passes events on meanwhile."""
        got, end = {}, time.monotonic() + timeout
        with selectors.DefaultSelector() as sel:
            for g, conn in self.conns.items():
                sel.register(conn, selectors.EVENT_READ, g)
            while len(got) < len(GUESTS):
                ready = sel.select(max(0, end - time.monotonic()))
                if not ready:
                    missing = " and ".join(g for g in GUESTS if g not in got)
                    raise OutOfTime(f"guest {missing}: not done after {timeout} s")
                for key, _ in ready:
                    for words in self.lines(key.data):
                        if words[0] == "event":
                            self.send(" ".join(words), [g for g in GUESTS if g != key.data])
                        elif words[0] == word:
                            got[key.data] = int(words[1]) if len(words) > 1 else 0
                if first_failure and any(got.values()):
                    break
        return got

    def lines(self, guest):
        try:
            data = self.conns[guest].recv(4096)
        except ConnectionError:
            data = b""
        if not data:
            raise GuestDied(f"guest {guest} died")
        *whole, self.buffers[guest] = (self.buffers[guest] + data).split(b"\n")
        return [line.decode(errors="replace").split() for line in whole if line.strip()]

    def power_off(self):
        try:
            self.send("off")
            for proc in self.procs.values():
                proc.wait(10)
        except (GuestDied, subprocess.TimeoutExpired):
            pass
        self.kill()


def die_with_parent():
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def bad_lines(path, harmless, worst_level=4):
    """Lines of a raw kernel log that a healthy guest does not have."""
    found = []
    if not os.path.exists(path):
        return found
    with open(path, errors="replace") as f:
        for line in f:
            m = re.match(r"<(\d+)>(.*)", line)
            level, text = (int(m[1]) & 7, m[2]) if m else (7, line.rstrip())
            if (level <= worst_level or BAD.search(text)) and not harmless.search(text):
                found.append(text)
    return found


def tail(path, count=12):
    if not os.path.exists(path):
        return []
    with open(path, errors="replace") as f:
        return f.read().splitlines()[-count:]


def run_case(guests, case):
    """None if it passed, or else (status, lines that say why); and whether the guests
    are fit for another case."""
    folder = f"{guests.out}/{case.name}"
    os.makedirs(folder, exist_ok=True)
    why, skipped, fit = [], False, True

    def failed(text, *files):
        why.append(text)
        for name in files:
            why.extend("    " + line for line in tail(f"{folder}/{name}"))

    path = case.path
    if path.startswith(HERE + "/"):
        path = "/tests/" + os.path.relpath(path, HERE)
    else:
        shutil.copy(path, f"{folder}/case")
        path = f"/out/{case.name}/case"

    try:
        guests.send("forget")
        for g, driver, peer in zip(GUESTS, case.drivers, reversed(case.drivers)):
            guests.send(" ".join(["prepare", case.name, driver, peer, *case.params]), [g])
        bad = [g for g, rc in guests.answers("prepared", STEP_TIMEOUT).items() if rc]
        for g in bad:
            failed(f"guest {g}: loading the driver failed", f"prepare.{g}")
        if not bad:
            guests.send(f"start {case.name} {path}")
            try:
                for g, rc in guests.answers("done", case.timeout, True).items():
                    if rc == SKIPPED:
                        skipped = True
                        why += tail(f"{folder}/stdout.{g}", 1)
                    elif rc:
                        failed(f"guest {g}: exit status {rc}", f"stdout.{g}")
            except OutOfTime as e:
                guests.send(f"blocked {case.name}")
                guests.answers("dumped", 20)
                failed(str(e))
                for g in GUESTS:
                    failed(f"  last output of guest {g}:", f"stdout.{g}")
        guests.send(f"clean {case.name}")
        for g, rc in guests.answers("cleaned", STEP_TIMEOUT).items():
            if rc:
                failed(f"guest {g}: unloading failed", f"clean.{g}")
                fit = False
    except OutOfTime as e:
        failed(f"{e} (loading, or unloading)")
        fit = False
        try:
            guests.send(f"blocked {case.name}")
            guests.answers("dumped", 20)
        except (OutOfTime, GuestDied):
            pass
    except GuestDied as e:
        failed(str(e))
        for g in GUESTS:
            console = tail(f"{guests.out}/console-{g}" + (f".{guests.boots}" if guests.boots > 1 else ""), 40)
            why.extend(f"    console of {g}: {line}" for line in console if line.strip())
        fit = False

    for g in GUESTS:
        lines = bad_lines(f"{folder}/dmesg.{g}", HARMLESS)
        if lines:
            failed(f"guest {g}: the kernel complained ({len(lines)} lines):")
            why.extend("    " + line for line in lines[:12])
            # After an oops or a stuck task nothing later could be trusted.
            fit = fit and not any(BAD.search(line) for line in lines)
            skipped = False
    if skipped:
        return "SKIP", why, fit
    return ("FAIL", why, fit) if why else ("PASS", [], fit)


def prepare_out(out, cases):
    if os.path.isdir(out):
        for name in os.listdir(out):
            path = f"{out}/{name}"
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
    os.makedirs(f"{out}/mod")
    os.makedirs(f"{out}/bin")
    drivers = {d for c in cases for d in c.drivers}
    if "siw" in drivers:
        ours = os.environ.get("SIW_KO", f"{TOP}/siw.ko")
        if not os.path.exists(ours):
            subprocess.run(["make", "-C", TOP], check=True)
        shutil.copy(ours, f"{out}/mod/siw.ko")
    if "c-siw" in drivers:
        shutil.copy(output(f"{TOP}/scripts/c-siw"), f"{out}/mod/c-siw.ko")
    for name in drivers - {"siw", "c-siw", "rxe", "none"}:
        sys.exit(f"no driver {name}")


def main():
    p = argparse.ArgumentParser(prog="qemu-tests/run", description=__doc__.split("\n\n")[0],
                                epilog="Logs are in build/log/qemu, one folder a case. SIW_KO=FILE in the "
                                       "environment: take that module instead of siw.ko.")
    p.add_argument("case", nargs="*", help="name of a case or of a group of them, or a case file")
    p.add_argument("--all", action="store_true", help="run every case")
    p.add_argument("--list", action="store_true", help="list the cases")
    p.add_argument("--driver", default="siw", metavar="NAME",
                   help="put NAME (c-siw, rxe) in place of siw")
    p.add_argument("--cmd-a", metavar="CMD", help="run a shell command of yours in guest a ...")
    p.add_argument("--cmd-b", metavar="CMD", help="... and one in guest b")
    p.add_argument("--timeout", type=int, metavar="SECONDS", help="bound of each case, in place of its own")
    p.add_argument("--capture", metavar="FILE", help="write the traffic between the guests to FILE")
    p.add_argument("--capture-port", metavar="PORT", help="of that, only this TCP port")
    p.add_argument("--logs", metavar="DIR", default=f"{TOP}/build/log/qemu", help="folder of the logs")
    args = p.parse_args()

    if args.list:
        for name, path in find_cases().items():
            case = Case(path, name, args.driver)
            say(f"{name:24} {'/'.join(case.drivers):14} {case.about}")
        return 0

    sockets = tempfile.mkdtemp(prefix="siw-qemu-")
    atexit.register(shutil.rmtree, sockets, True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    if args.cmd_a or args.cmd_b:
        path = f"{sockets}/command.case"
        with open(path, "w") as f:
            f.write(f"a() {{\n{args.cmd_a or ':'}\n}}\nb() {{\n{args.cmd_b or ':'}\n}}\n")
        args.case.append(path)
    if not args.case and not args.all:
        p.error("name a case, or --all")
    cases = pick_cases(args.case, args.all, args.driver)
    names = {}
    for case in cases:
        case.timeout = args.timeout or case.timeout
        # A case named again runs again, with logs of its own.
        names[case.name] = names.get(case.name, 0) + 1
        if names[case.name] > 1:
            case.name += f".{names[case.name]}"

    out = os.path.realpath(args.logs)
    os.makedirs(os.path.dirname(out), exist_ok=True)
    lock = open(out + ".lock", "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(f"waiting for another run that logs to {out}")
        fcntl.flock(lock, fcntl.LOCK_EX)

    image = output(f"{HERE}/image")
    prepare_out(out, cases)
    output(f"{HERE}/src/build", f"{out}/bin")
    network = Network(sockets)
    guests = Guests(image, out, network, sockets)
    capture = None
    if args.capture:
        if not network.taps:
            sys.exit("cannot capture without taps")
        only = ["-f", f"tcp port {args.capture_port}"] if args.capture_port else []
        capture = subprocess.Popen(
            ["dumpcap", "-q", "-i", "tap-a", "-B", "256", *only, "-w", args.capture],
            stderr=open(f"{out}/capture", "w"), preexec_fn=die_with_parent)

    counts = {"PASS": 0, "FAIL": 0, "SKIP": 0}
    up = False
    for case in cases:
        if not up:
            try:
                took = guests.boot()
            except (GuestDied, OutOfTime) as e:
                say(f"the guests did not boot: {e}; consoles: {out}/console-*")
                return 1
            say(f"guests booted in {took:.0f} s")
            for g in GUESTS:
                lines = bad_lines(f"{out}/boot-dmesg.{g}", HARMLESS_AT_BOOT, -1)
                if lines:
                    say(f"guest {g}: the kernel complained at boot:\n    " + "\n    ".join(lines[:12]))
                    counts["FAIL"] += 1
        start = time.monotonic()
        status, why, up = run_case(guests, case)
        counts[status] += 1
        where = "" if case.drivers == ["siw", "siw"] else f" ({'/'.join(case.drivers)})"
        say(f"{status} {case.name}{where} {time.monotonic() - start:.0f} s")
        for line in why:
            say("    " + line)
        if status == "FAIL":
            say(f"    logs: {out}/{case.name}")
        elif args.cmd_a or args.cmd_b:
            for g in GUESTS:
                say(f"--- guest {g}")
                sys.stdout.write(open(f"{out}/{case.name}/stdout.{g}", errors="replace").read())
    if up:
        guests.power_off()
    if capture:
        capture.send_signal(signal.SIGINT)
        capture.wait(30)
    say(f"{counts['PASS']} passed, {counts['FAIL']} failed, {counts['SKIP']} skipped")
    return 1 if counts["FAIL"] else 0


if __name__ == "__main__":
    sys.exit(main())
