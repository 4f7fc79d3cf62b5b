# SPDX-License-Identifier: GPL-2.0
"""Runs test cases between two guests: in QEMU, on the stock Debian kernel or on one with several CPUs and KASAN
(scripts/smp.config), or in one User Mode Linux, where the guests are two sets of namespaces: the sanitizer kernel
(scripts/sanitize.config), the one with several CPUs (scripts/race.config), or the one for measuring at native speed
(scripts/bench.config).

A case is a shell file with a header ("#: key value") and two functions, a and b,
one per guest; guest/lib.sh has what they can call. All cases of a run share one
boot of the guests: the driver is loaded before and unloaded after each of them.
A case fails if one of its halves fails or does not end in time, if anything is left
behind, or if the kernel of a guest logs a warning."""

import argparse
import atexit
import bisect
import collections
import ctypes
import fcntl
import json
import os
import re
import selectors
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from accelerator import accelerator

HERE = os.path.dirname(os.path.realpath(__file__))
TOP = os.path.dirname(HERE)
CASES = os.path.join(HERE, "cases")
GUESTS = ("a", "b")
RELEASE = os.environ.get("SIW_RELEASE", "")  # of the stock kernel
QEMU = ("stock", "smp")
KERNELS = QEMU + ("sanitize", "race", "bench")
LEAKS = ("smp", "sanitize")  # these look for leaked memory
SLOWER = {"smp": 3}  # factor of the time-outs of slow kernels
CPUS = min(4, os.cpu_count())
UML = {  # parameters of each User Mode Linux
    "sanitize": ("mem=1500M", "seccomp=off"),
    # All checks of SLUB but U, which stores the stack of each allocation: User Mode Linux is slow at walking stacks.
    "race": ("mem=2G", "seccomp=on", f"ncpus={CPUS}", "slab_debug=FZP"),
    # Both ends need a CPU.
    "bench": ("mem=3G", "seccomp=on", f"ncpus={CPUS}"),
}
BOOT_TIMEOUT = 600  # the machine may be busy with other things
STEP_TIMEOUT = 120  # loading or unloading a driver
LEAK_AGE = 6  # kmemleak reports no younger objects
PROVIDERS = {  # what chooses a provider library for the programs of a case
    "stock": (),
    "ours": ("RDMAV_DRIVERS=/run/bin/libsiw",),  # libibverbs appends -rdmav34.so
}
# Programs and modules that some cases need, by the key of their headers: what makes them and prints where they are, and
# the folder that the guests find them in.
MADE = {
    "debian12": (f"{HERE}/debian12", ""),
    "pypi": (f"{HERE}/pypi", "pypi"),
    "smb": (f"{TOP}/scripts/smb-direct", "mod"),
    "valkey": (f"{TOP}/scripts/valkey", "bin"),
}
HANDED_ON = re.compile("TEST_(SECONDS|SEED)|BENCH_.*")  # variables that cases get
SKIPPED = 77  # exit status of a half that cannot run here

# Log levels 0 to 4 (warning) fail a case, and these texts at any level.
BAD = re.compile(
    r"BUG:|WARNING:|\bOops|general protection|Call Trace|blocked for more than|\bstall|"
    r"refcount|leak|lockdep|circular locking|UBSAN|KASAN|unable to handle|soft lockup|"
    r"scheduling while atomic|sleeping function|unregister_netdevice: waiting|Kernel panic",
    re.I,
)
# The beginning of a report.
SPLAT = re.compile(r"BUG:|WARNING:|UBSAN:|Oops|general protection|blocked for more than|"
                   r"unregister_netdevice: waiting|Kernel panic")
# Messages of a healthy stock kernel.
HARMLESS = re.compile("|".join((
    r"qemu-tests: ",
    r"loading out-of-tree module taints kernel",
    r"module verification failed: signature and/or required key missing",
    r"speed is unknown, defaulting to 1000",
    # C siw, about messages of a peer.
    r"siw: got TERMINATE|siw: siw_rx_umem: .* bogus addr",
    # C siw, about a CRC in two TCP segments: row split-trailer.
    r"siw: crc error\. in: ",
    # The sanitizer kernel. Leaks are read from a file of their own.
    r"kmemleak: ",
    # The core, about a port event that it handles after the netdev is gone.
    r"ib_query_port failed \(-19\)",
)))
# The driver's counters that the summary of a case shows.
EXERCISED = {
    "connections": r"\bactive_connects (\d+)",
    "FPDUs": r"\brx_fpdus (\d+)",
    "bytes": r"\brx_bytes (\d+)",
    "Terminates": r"\btx_terminate (\d+)",
}
# Before any driver is loaded, the stock kernel's clocks may complain in a guest on a busy machine.
# So the texts count there, not the levels.
HARMLESS_AT_BOOT = re.compile("BIOS|LOCKDEP_|RCU lockdep checking is enabled|kmemleak: ")


def tsc_khz(counted):
    """The TSC's rate as a kernel parameter. TCG passes the TSC of this machine through, but a guest on a
    busy machine may measure a wrong rate. Then its clock runs fast and time-outs strike at random. In a
    guest that counts instructions it is their rate."""
    if counted:
        return "tsc_early_khz=1000000"
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
        bogomips = re.search(r"^bogomips\s*:\s*([0-9.]+)", f.read(), re.M)
    # BogoMIPS are twice the TSC's rate, whatever the CPU's present rate is.
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
    """The last line of a set-up script's output; its progress goes to stderr."""
    res = subprocess.run(cmd, stdout=subprocess.PIPE, text=True)
    if res.returncode:
        sys.exit(res.returncode)
    return res.stdout.strip().splitlines()[-1]


class Case:
    def __init__(self, path, name, driver):
        self.path, self.name, self.known_as = path, name, name
        self.kernels = KERNELS
        self.about, self.drivers, self.params, self.timeout = "", ["siw", "siw"], [], 300
        self.harmless, self.warnings = [], []
        self.consumer = False
        self.sample = False
        self.made = set()
        self.crates = set()
        self.programs = None
        self.provider = "stock"
        self.cpus, self.memory, self.nics, self.counted = 1, 1536, 1, False
        self.soak = False
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
                elif key == "cpus":
                    # Of each guest in QEMU.
                    self.cpus = int(value)
                elif key == "memory":
                    # The same, in MiB.
                    self.memory = int(value)
                elif key == "nics":
                    # Of each guest: eth0 and on. Each joins the guests by a network of its own.
                    self.nics = int(value)
                elif key == "counted":
                    # The guests' clocks count instructions, one a nanosecond; the value says why.
                    self.counted = True
                elif key == "soak":
                    # Only for make soak; the value says why.
                    self.soak = True
                elif key == "harmless":
                    # A message that the case provokes from the kernel.
                    self.harmless.append(value)
                elif key == "warning":
                    # A function of others in which the kernel warns; the words after it say why.
                    self.warnings.append(value.split()[0])
                elif key == "consumer":
                    # The case needs the kernel consumer of the tests; the value says why.
                    self.consumer = True
                elif key == "sample":
                    # The same with rdma_null, the sample provider.
                    self.sample = True
                elif key == "crate":
                    # A program in Rust of src/ that it runs.
                    self.crates.add(value)
                elif key == "programs":
                    # The programs in C of src/ that it runs, without the line all of them.
                    self.programs = set(value.split())
                elif key in MADE:
                    # The value says why.
                    self.made.add(key)
                elif key == "provider":
                    # The provider library of its programs.
                    self.provider = value
                elif key == "kernel":
                    # The words after the names say why.
                    self.kernels = tuple(value.split()[0].split(","))
                else:
                    sys.exit(f"{path}: unknown key {key}")
        if len(self.drivers) != 2:
            sys.exit(f"{path}: drivers must name two, for guests a and b")
        if self.provider not in PROVIDERS:
            sys.exit(f"{path}: provider must be one of {', '.join(PROVIDERS)}")
        self.drivers = [driver if d == "siw" else d for d in self.drivers]
        if self.drivers[0] != self.drivers[1] and not "none" in self.drivers:
            self.kernels = QEMU  # one kernel takes only one of them


def find_cases():
    found = []
    for folder, _, files in os.walk(CASES):
        found += [os.path.join(folder, f) for f in files if f.endswith(".case")]
    return {os.path.relpath(p, CASES)[: -len(".case")]: p for p in sorted(found)}


def pick_cases(wanted, everything, driver, kernel):
    known = find_cases()
    if everything:
        cases = [Case(p, n, driver) for n, p in known.items()]
        return [c for c in cases if kernel in c.kernels and not c.soak]
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
    """For each NIC of a guest a bridge with two taps, in a network namespace of this process, which ends
    with it. vnet_hdr gives the guests TSO and checksum offload."""

    def __init__(self, sockets, nics):
        self.sockets = sockets
        self.taps = False
        clone_newnet = 0x40000000
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(clone_newnet):
            self.fall_back(os.strerror(ctypes.get_errno()))
            return
        try:
            for nic in range(nics):
                run("ip", "link", "add", f"br{nic}", "type", "bridge", "stp_state", "0", "forward_delay", "0")
                for g in GUESTS:
                    run("ip", "tuntap", "add", self.tap(g, nic), "mode", "tap", "vnet_hdr")
                    run("ip", "link", "set", self.tap(g, nic), "master", f"br{nic}", "up")
                run("ip", "link", "set", f"br{nic}", "up")
            self.taps = True
        except (subprocess.CalledProcessError, OSError) as e:
            self.fall_back(str(e))

    def fall_back(self, why):
        say(f"warning: no taps here ({why}): the guests get a socket network, without TSO "
            "and checksum offload; figures are not comparable. A container needs --privileged, or /dev/net/tun "
            "and CAP_NET_ADMIN")

    @staticmethod
    def tap(guest, nic):
        return f"tap-{guest}{nic or ''}"

    def devices(self, guest, nic):
        """QEMU's arguments for a NIC."""
        if self.taps:
            netdev = f"tap,id=net{nic},ifname={self.tap(guest, nic)},script=no,downscript=no,vnet_hdr=on"
        else:
            server = "on" if guest == "a" else "off"
            netdev = f"stream,id=net{nic},server={server},addr.type=unix,addr.path={self.sockets}/net{nic}"
        return ["-netdev", netdev, "-device", f"virtio-net-pci,netdev=net{nic},mac=52:54:00:77:{nic:02}:0{guest}"]


class Guests:
    def __init__(self, image, out, kind, network, sockets):
        self.image, self.out, self.kind, self.network, self.sockets = image, out, kind, network, sockets
        self.procs, self.conns, self.buffers, self.monitors = {}, {}, {}, {}
        self.boots = 0
        self.cpus, self.memory, self.nics, self.counted = 1, 1536, 1, False
        self.terminals = None  # folder of the sockets of the guests' terminals
        self.history = []  # the cases of this boot: when each began in either guest, and its name
        self.kernels = GUESTS  # which guests' kernel logs to read
        self.splats = 0
        atexit.register(self.kill)

    def kill(self):
        for conn in (*self.conns.values(), *self.monitors.values()):
            conn.close()
        for proc in self.procs.values():
            proc.kill()
            proc.wait()
        self.procs, self.conns, self.monitors, self.history = {}, {}, {}, []

    def boot(self):
        self.kill()
        self.boots += 1
        start = time.monotonic()
        for g in GUESTS:
            ctl = f"{self.sockets}/ctl-{g}"
            if os.path.exists(ctl):
                os.unlink(ctl)
            console = f"{self.out}/console-{g}{self.nth_boot()}"
            # The agent brings up the other CPUs when the kernel no longer patches its code.
            append = (
                "console=ttyS0 quiet loglevel=5 panic=-1 net.ifnames=0 no_timer_check tsc=reliable maxcpus=1 "
                f"{tsc_khz(self.counted)} siw.guest={g} siw.kernel={self.kind} siw.nics={self.nics}"
            )
            # With five levels of page tables KASAN reports an interrupt at the instant when the kernel
            # forgets the features of the CPU, to find them anew.
            cpu = "max,la57=off"
            if self.counted:
                # QEMU counts an instruction for each byte that "rep movsb" copies.
                cpu += ",erms=off,fsrm=off"
            cmd = [
                "qemu-system-x86_64", "-accel", self.accelerator(), "-cpu", cpu, "-m", str(self.memory),
                # The firmware's MP table, for kernels without ACPI, has one CPU of each socket.
                "-smp", f"{self.cpus},sockets={self.cpus}", *(["-icount", "shift=0"] if self.counted else []),
                "-nodefaults", "-no-reboot", "-display", "none", "-serial", f"file:{console}",
                "-kernel", f"{self.image}/vmlinuz", "-initrd", f"{self.image}/initrd",
                "-append", append,
                "-drive", f"file={self.image}/root.img,if=none,id=root,format=raw,readonly=on",
                "-drive", f"file={self.image}/modules.img,if=none,id=modules,format=raw,readonly=on",
                "-device", "virtio-blk-pci,drive=root", "-device", "virtio-blk-pci,drive=modules",
                "-device", "virtio-rng-pci",
                *(word for nic in range(self.nics) for word in self.network.devices(g, nic)),
                "-virtfs", f"local,path={HERE},mount_tag=tests,security_model=none,readonly=on",
                "-virtfs", f"local,path={self.out},mount_tag=out,security_model=none",
                "-chardev", f"socket,id=ctl,path={ctl},server=on,wait=off",
                "-device", "virtio-serial-pci", "-device", "virtserialport,chardev=ctl,name=siw.ctl",
                *self.terminal(g),
                "-qmp", f"unix:{self.sockets}/qmp-{g},server=on,wait=off",
            ]
            with open(f"{self.out}/qemu-{g}", "a") as log:
                self.procs[g] = subprocess.Popen(cmd, stdin=subprocess.DEVNULL, stdout=log,
                                                 stderr=log, preexec_fn=die_with_parent)
            self.conns[g] = self.connect(g, ctl)
            self.buffers[g] = b""
            self.monitors[g] = self.connect(g, f"{self.sockets}/qmp-{g}")
            self.command(g, "qmp_capabilities")
        self.answers("ready", BOOT_TIMEOUT)
        return time.monotonic() - start

    def how(self):
        return self.accelerator().upper()

    def accelerator(self):
        """TCG counts instructions; KVM does not."""
        return "tcg" if self.counted else accelerator(f"{self.image}/vmlinuz")

    def terminal(self, guest):
        """QEMU's arguments for /dev/hvc0."""
        if not self.terminals:
            return ()
        return ("-chardev", f"socket,id=terminal,path={self.terminals}/{guest},server=on,wait=off",
                "-device", "virtconsole,chardev=terminal")

    def command(self, guest, name, /, **arguments):
        """A command to QEMU's monitor. Nobody waits for the answer: the guest sees what happens."""
        try:
            self.monitors[guest].sendall(json.dumps({"execute": name, "arguments": arguments}).encode())
        except OSError:
            raise GuestDied(f"guest {guest} died")

    def set_link(self, guest, nic, state):
        """Pulls the cable of a guest's NIC, or puts it back."""
        self.command(guest, "set_link", name=f"net{nic}", up=state == "up")

    def consoles(self):
        return [f"{self.out}/console-{g}{self.nth_boot()}" for g in GUESTS]

    def nth_boot(self):
        return f".{self.boots}" if self.boots > 1 else ""

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

    def answers(self, word, timeout, first_failure=False, guests=GUESTS):
        """The status in each guest's answer WORD. Passes events on while it waits."""
        timeout *= SLOWER.get(self.kind, 1)
        got, end = {}, time.monotonic() + timeout
        with selectors.DefaultSelector() as sel:
            for g, conn in self.conns.items():
                sel.register(conn, selectors.EVENT_READ, g)
            while len(got) < len(guests):
                ready = sel.select(max(0, end - time.monotonic()))
                if not ready:
                    missing = " and ".join(g for g in guests if g not in got)
                    raise OutOfTime(f"guest {missing}: not done after {timeout} s")
                for key, _ in ready:
                    for words in self.lines(key.data):
                        if words[0] == "event":
                            self.send(" ".join(words), [g for g in GUESTS if g != key.data])
                        elif words[0] == "link":
                            self.set_link(key.data, *words[1:])
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

    def leaks(self, case):
        """New leaks of the driver, as (name of a case, text). kmemleak reports an object 5 s after its allocation
        at the earliest, so the case may be one before the last."""
        if self.kind not in LEAKS:
            return []
        self.send(f"leaks {case.name}", self.kernels)
        self.answers("scanned", STEP_TIMEOUT, guests=self.kernels)
        found = []
        for g in self.kernels:
            with open(f"{self.out}/{case.name}/leaks.{g}", errors="replace") as f:
                objects = re.split(r"^(?=unreferenced object)", f.read(), flags=re.M)[1:]
            for text in objects:
                # jiffies begin five minutes before they wrap, 100 a second.
                made = (int(re.search(r"jiffies (\d+)", text)[1]) + 30000 & 0xffffffff) / 100
                name = next((name for start, name in reversed(self.history) if start[g] <= made), None)
                text = self.with_symbols(text, name, g)
                if name and "[siw]" in text:
                    found.append((name, text))
        return found

    def with_symbols(self, text, name, guest):
        """The text with the names of the driver's functions, which the kernel knew while the driver was loaded."""
        path = f"{self.out}/{name}/symbols.{guest}"
        if not os.path.exists(path):
            return text
        with open(path) as f:
            symbols = sorted((int(words[0], 16), words[2]) for words in map(str.split, f))

        def name_of(match):
            address = int(match[0], 16)
            at = bisect.bisect(symbols, (address, "~")) - 1
            if at < 0 or address > symbols[-1][0] + 0x10000:
                return match[0]
            return f"{symbols[at][1]}+{address - symbols[at][0]:#x} [siw]"

        return re.sub(r"\b0x[0-9a-f]{8,16}$", name_of, text, flags=re.M)

    def power_off(self):
        try:
            self.send("off")
            for proc in self.procs.values():
                proc.wait(10)
        except (GuestDied, subprocess.TimeoutExpired):
            pass
        self.kill()


class OneKernel(Guests):
    """Both guests in one User Mode Linux, which is a process here."""

    def __init__(self, image, out, kind, kernel, sockets, number):
        super().__init__(image, out, kind, None, sockets)
        self.kernel, self.number = kernel, number
        self.kernels = "a"
        # The root that it boots from, before it mounts the image.
        self.initial = f"{out}/initial-{number}"
        for name in ("bin", "proc", "sys", "dev", "lower", "rw", "root"):
            os.makedirs(f"{self.initial}/{name}")
        shutil.copy(f"{image}/root/usr/bin/busybox", f"{self.initial}/bin")
        shutil.copy(f"{HERE}/guest/uml-init", f"{self.initial}/init")

    def consoles(self):
        return [f"{self.out}/console-{self.number}{self.nth_boot()}"]

    def how(self):
        return "User Mode Linux"

    def boot(self):
        self.kill()
        self.boots += 1
        start = time.monotonic()
        theirs = {}
        for g in GUESTS:
            self.conns[g], theirs[g] = socket.socketpair()
            self.buffers[g] = b""
        fds = [theirs[g].fileno() for g in GUESTS]
        # So that what is measured is not the cost of masked interrupts.
        soft_mask = ["env", f"LD_PRELOAD={self.out}/bin/libsoft-mask.so"] if self.kind == "bench" else []
        cmd = [
            # The end of the PID namespace ends all its processes.
            "unshare", "--pid", "--fork", "--kill-child",
            # It is linked against the libraries of the build root.
            f"{TOP}/scripts/in-root", *soft_mask, f"{self.kernel}/linux", *UML[self.kind], f"uml_dir={self.out}/uml",
            "quiet", "loglevel=5", "panic=-1",
            "con=null", "con0=fd:0,fd:1", "ssl=null", *(f"ssl{i}=fd:{fd},fd:{fd}" for i, fd in enumerate(fds)),
            "rootfstype=hostfs", f"rootflags={self.initial}", "rw", "init=/init",
            f"host.root={os.path.realpath(self.image + '/root')}", f"host.tests={HERE}", f"host.out={self.out}",
            f"host.modules={self.kernel}/modules", f"host.kernel={self.kind}", f"host.nics={self.nics}",
        ]
        with open(self.consoles()[0], "w") as console:
            self.procs["uml"] = subprocess.Popen(cmd, stdin=subprocess.PIPE, stdout=console, stderr=console,
                                                 pass_fds=fds, preexec_fn=die_with_parent)
        for sock in theirs.values():
            sock.close()
        self.answers("ready", BOOT_TIMEOUT)
        return time.monotonic() - start


def die_with_parent():
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def busy_loops():
    """A busy process at normal priority for each CPU."""
    return [subprocess.Popen([sys.executable, "-c", "while True: pass"], stdin=subprocess.DEVNULL,
                             preexec_fn=die_with_parent) for _ in range(os.cpu_count())]


def tell_chances(cases, results):
    """Prints a line for each case: how often it passed, and the logs of its failures."""
    width = max(len(case.known_as) for case in cases)
    say(f"{'case':{width}}  passed  failed  of")
    for known_as in dict.fromkeys(case.known_as for case in cases):
        names = [case.name for case in cases if case.known_as == known_as]
        passed = sum(results.get(name) == "PASS" for name in names)
        failed = [name for name in names if results.get(name) == "FAIL"]
        say(f"{known_as:{width}}  {passed:6}  {len(failed):6}  {len(names):2}  {' '.join(failed)}".rstrip())


def log_without(path, functions):
    """A kernel's log without the reports of warnings in these functions."""
    text = text_of(path)
    for function in functions:
        # A report is all between its marks, unless another one begins there.
        text = re.sub(rf"^.*\[ cut here \]-+\n.*WARNING: .* at {function}\+.*\n(?:(?!.*(?:{SPLAT.pattern})).*\n)*?"
                      r".*---\[ end trace .*\n", "", text, flags=re.M)
    return text


def splat(path, warnings=()):
    """The first report in a kernel's log."""
    lines = log_without(path, warnings).splitlines()
    first = next((i for i, line in enumerate(lines) if SPLAT.search(line)), len(lines))
    return lines[first:first + 40]


def bad_lines(path, harmless, worst_level=4, warnings=()):
    """Lines of a raw kernel log that a healthy guest does not have."""
    found = []
    for line in log_without(path, warnings).splitlines():
        m = re.match(r"<(\d+)>(.*)", line)
        level, text = (int(m[1]) & 7, m[2]) if m else (7, line.rstrip())
        if (level <= worst_level or BAD.search(text)) and not harmless.search(text):
            found.append(text)
    return found


def text_of(path):
    if not os.path.exists(path):
        return ""
    with open(path, errors="replace") as f:
        return f.read()


def tail(path, count=12):
    return text_of(path).splitlines()[-count:]


def exercised(folder):
    """What a case did, by the counters of the devices that existed at its end, and by its own figures."""
    done = collections.Counter()
    for g in GUESTS:
        for words, pattern in EXERCISED.items():
            done[words] += sum(map(int, re.findall(pattern, text_of(f"{folder}/counters.{g}"))))
        for line in text_of(f"{folder}/exercised.{g}").splitlines():
            words, n = line.rsplit(None, 1)
            done[words] += int(n)
    return +done


def amounts(done):
    return ", ".join(f"{n} {words}" for words, n in done.items()) or "nothing counted"


def run_case(guests, case):
    """Runs a case. Returns its status, lines that say why, and whether the guests
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
        starts = {g: float(text_of(f"{folder}/uptime.{g}").split()[0]) for g in GUESTS}
        guests.history.append((starts, case.name))
        for g in bad:
            failed(f"guest {g}: loading the driver failed", f"prepare.{g}")
        if not bad:
            guests.send(" ".join(["start", case.name, path, f"PROVIDER={case.provider}", *PROVIDERS[case.provider]]))
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
        guests.splats += 1
        for path in guests.consoles():
            lines = splat(path) or text_of(path).splitlines()[-40:]
            why.extend(f"    {os.path.basename(path)}: {line}" for line in lines if line.strip())
        fit = False

    for g in guests.kernels:
        lines = [line for line in bad_lines(f"{folder}/dmesg.{g}", HARMLESS, warnings=case.warnings)
                 if SPLAT.search(line) or "leak" in line or not any(text in line for text in case.harmless)]
        guests.splats += sum(1 for line in lines if SPLAT.search(line))
        if lines:
            failed(f"guest {g}: the kernel complained ({len(lines)} lines):")
            why.extend("    " + line for line in lines[:12])
            # The report shows what the kernel was doing. It is context, not another complaint.
            why.extend("      " + line for line in splat(f"{folder}/dmesg.{g}", case.warnings))
            # After an oops or a stuck task no later result can be trusted.
            fit = fit and not any(BAD.search(line) for line in lines)
            skipped = False
    if skipped:
        return "SKIP", why, fit
    return ("FAIL", why, fit) if why else ("PASS", [], fit)


def prepare_out(out, cases, kernel):
    if os.path.isdir(out):
        for name in os.listdir(out):
            path = f"{out}/{name}"
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
    os.makedirs(f"{out}/mod")
    os.makedirs(f"{out}/bin")
    with open(f"{out}/environment", "w") as f:
        for name in os.environ:
            if HANDED_ON.fullmatch(name):
                f.write(f"export {name}={shlex.quote(os.environ[name])}\n")
    drivers = {d for c in cases for d in c.drivers}
    if "siw" in drivers:
        ours = os.environ.get("SIW_KO", f"{TOP}/build/{RELEASE}/{'module' if kernel == 'stock' else kernel}/siw.ko")
        if not os.path.exists(ours):
            subprocess.run(["make", "-C", TOP, "modules" if kernel == "stock" else f"{kernel}-module"], check=True)
        shutil.copy(ours, f"{out}/mod/siw.ko")
    if "old-siw" in drivers:
        # See compare.
        shutil.copy(f"{TOP}/build/{RELEASE}/{'module' if kernel == 'stock' else kernel}-old/siw.ko", f"{out}/mod/old-siw.ko")
    if "c-siw" in drivers:
        if kernel == "stock":
            theirs = output(f"{TOP}/scripts/c-siw")
        else:
            theirs = output(f"{TOP}/scripts/own-kernel", kernel) + "/modules/kernel/drivers/infiniband/sw/siw/siw.ko"
        shutil.copy(theirs, f"{out}/mod/c-siw.ko")
    if any(c.consumer for c in cases):
        shutil.copy(output(f"{TOP}/scripts/consumer", kernel), f"{out}/mod/")
    if any(c.sample for c in cases):
        subprocess.run(["make", "-C", TOP, "sample"], check=True)
        shutil.copy(f"{TOP}/build/{RELEASE}/sample/rdma_null.ko", f"{out}/mod/")
    if any(c.provider == "ours" for c in cases):
        shutil.copy(output(f"{TOP}/scripts/provider", "build"), f"{out}/bin/")
    for key in sorted(set().union(*(c.made for c in cases))):
        script, folder = MADE[key]
        made = output(script)
        if os.path.isdir(made):
            shutil.copytree(made, f"{out}/{folder}", dirs_exist_ok=True)
        else:
            shutil.copy(made, f"{out}/{folder}")
    for name in drivers - {"siw", "old-siw", "c-siw", "rxe", "none"}:
        sys.exit(f"no driver {name}")


class Run:
    """The cases of a run, and their results. Each kernel has a thread that runs one case after the other."""

    def __init__(self, args, out, cases):
        self.args, self.out = args, out
        self.cases = cases[::-1]
        self.results, self.leaks, self.total = {}, 0, collections.Counter()
        self.lock = threading.Lock()

    def say(self, *lines):
        with self.lock:
            for line in lines:
                say(line)

    def boot(self, guests):
        with self.lock:
            try:
                took = guests.boot()
            except (GuestDied, OutOfTime) as e:
                say(f"FAIL boot: {e}; consoles: {' '.join(guests.consoles())}")
                self.results[f"boot {guests.consoles()[0]}"] = "FAIL"
                return False
            say(f"guests booted with {guests.how()} in {took:.0f} s")
            for g in guests.kernels:
                lines = bad_lines(f"{self.out}/boot-dmesg.{g}", HARMLESS_AT_BOOT, -1)
                if lines:
                    say(f"FAIL boot: the kernel of guest {g} complained:\n    " + "\n    ".join(lines[:12]))
                    self.results[f"boot {guests.consoles()[0]}"] = "FAIL"
        return True

    def work(self, guests):
        up = False
        while True:
            with self.lock:
                if not self.cases:
                    break
                case = self.cases.pop()
            machine = case.cpus, case.memory, case.nics, case.counted
            if up and machine != (guests.cpus, guests.memory, guests.nics, guests.counted):
                guests.power_off()
                up = False
            guests.cpus, guests.memory, guests.nics, guests.counted = machine
            if not up and not self.boot(guests):
                return
            up = self.run_case(guests, case) and self.look_for_leaks(guests, case)
        if up:
            if self.args.kernel in LEAKS:
                time.sleep(LEAK_AGE)
                self.look_for_leaks(guests, case)
            guests.power_off()

    def run_case(self, guests, case):
        start = time.monotonic()
        status, why, up = run_case(guests, case)
        where = "" if case.drivers == ["siw", "siw"] else f" ({'/'.join(case.drivers)})"
        where += "" if case.provider == "stock" else f" ({case.provider})"
        done = exercised(f"{self.out}/{case.name}")
        what = f": {amounts(done)}" if self.args.kernel in LEAKS else ""
        lines = [f"{status} {case.name}{where} {time.monotonic() - start:.0f} s{what}"]
        lines += ["    " + line for line in why]
        if status == "FAIL":
            lines.append(f"    logs: {self.out}/{case.name}")
        elif self.args.cmd_a or self.args.cmd_b:
            for g in GUESTS:
                lines += [f"--- guest {g}", text_of(f"{self.out}/{case.name}/stdout.{g}").rstrip("\n")]
        self.say(*lines)
        with self.lock:
            self.results[case.name] = status
            self.total += done
        return up

    def look_for_leaks(self, guests, case):
        try:
            found = guests.leaks(case)
        except (GuestDied, OutOfTime) as e:
            self.say(f"FAIL {case.name}: looking for leaks: {e}")
            self.results[case.name] = "FAIL"
            return False
        for name, text in found:
            self.say(f"FAIL {name}: leaked memory", "    " + text.rstrip().replace("\n", "\n    "))
            with self.lock:
                self.leaks += 1
                self.results[name] = "FAIL"
        return True


def main():
    p = argparse.ArgumentParser(prog="qemu-tests/run", description=__doc__.split("\n\n")[0],
                                epilog="Logs are in build/log/qemu, a folder for each case. SIW_KO=FILE in the "
                                       "environment: take that module instead of siw.ko. TEST_SECONDS=N: cases that "
                                       "can last for any time take about so long (see --timeout). TEST_SEED=N: "
                                       "cases with random choices start from this seed.")
    p.add_argument("case", nargs="*", help="name of a case or of a group of them, or a case file")
    p.add_argument("--all", action="store_true", help="run every case, except those of make soak")
    p.add_argument("--list", action="store_true", help="list the cases")
    p.add_argument("--kernel", choices=KERNELS, default="stock", help="which kernel to run on")
    p.add_argument("--cpus", type=int, metavar="N", help="CPUs of each guest in QEMU, instead of the number in the case's header (on the smp kernel at least 2)")
    p.add_argument("--driver", default="siw", metavar="NAME",
                   help="use NAME (c-siw, rxe) instead of siw")
    p.add_argument("--cmd-a", metavar="CMD", help="run a shell command in guest a ...")
    p.add_argument("--cmd-b", metavar="CMD", help="... and one in guest b")
    p.add_argument("--repeat", type=int, metavar="N", help="run the cases N times, and show how often each passed")
    p.add_argument("--loaded", action="store_true", help="keep all CPUs of this machine busy")
    p.add_argument("--timeout", type=int, metavar="SECONDS", help="time-out of each case, instead of its own")
    p.add_argument("--capture", metavar="FILE", help="write the traffic between the guests to FILE")
    p.add_argument("--capture-port", metavar="PORT", help="capture only this TCP port")
    p.add_argument("--terminals", metavar="DIR", help="give each guest in QEMU a terminal, /dev/hvc0, at the socket DIR/a or DIR/b")
    p.add_argument("--logs", metavar="DIR", help="folder of the logs")
    args = p.parse_args()

    if args.list:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # "| head" ends it
        for name, path in find_cases().items():
            case = Case(path, name, args.driver)
            say(f"{name:24} {'/'.join(case.drivers):14} {case.about}")
        return 0

    sockets = tempfile.mkdtemp(prefix="siw-qemu-")
    atexit.register(shutil.rmtree, sockets, True)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores SIGHUP
            signal.signal(number, lambda number, _: sys.exit(128 + number))

    if args.cmd_a or args.cmd_b:
        path = f"{sockets}/command.case"
        with open(path, "w") as f:
            f.write(f"a() {{\n{args.cmd_a or ':'}\n}}\nb() {{\n{args.cmd_b or ':'}\n}}\n")
        args.case.append(path)
    if not args.case and not args.all:
        p.error("name a case, or --all")
    cases = [case for _ in range(args.repeat or 1) for case in pick_cases(args.case, args.all, args.driver, args.kernel)]
    names = {}
    for case in cases:
        case.timeout = args.timeout or case.timeout
        if args.kernel in QEMU:
            case.cpus = args.cpus or max(case.cpus, 2 if args.kernel == "smp" else 1)
        else:
            case.cpus, case.memory = 1, 0
        # A case that is named again runs again, with logs of its own.
        names[case.name] = names.get(case.name, 0) + 1
        if names[case.name] > 1:
            case.name += f".{names[case.name]}"

    # With --all, those that may take longest come first, so that kernels that run cases side by side
    # end at about the same time. Named cases keep their order: make bench takes turns.
    if args.all:
        cases.sort(key=lambda case: -case.timeout)
    # This order saves boots.
    cases.sort(key=lambda case: (case.counted, case.cpus, case.memory, case.nics))

    out = os.path.realpath(args.logs or f"{TOP}/build/log/{'qemu' if args.kernel == 'stock' else args.kernel}")
    if args.kernel not in QEMU and os.path.commonpath((out, TOP)) != TOP:
        p.error(f"this kernel sees only {TOP}: --logs must be inside")
    os.makedirs(os.path.dirname(out), exist_ok=True)
    lock = open(out + ".lock", "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(f"waiting for another run that logs to {out}")
        fcntl.flock(lock, fcntl.LOCK_EX)

    image = output(f"{HERE}/image", args.kernel if args.kernel in QEMU else "stock")
    prepare_out(out, cases, args.kernel)
    programs = [case.programs for case in cases]
    if None not in programs:
        os.environ["SIW_PROGRAMS"] = " ".join(sorted(set().union(*programs)))
    output(f"{HERE}/src/build", f"{out}/bin", *sorted(set().union(*(case.crates for case in cases))))
    if args.kernel in QEMU:
        network = Network(sockets, max(case.nics for case in cases))
        kernels = [Guests(image, out, args.kernel, network, sockets)]
        kernels[0].terminals = args.terminals
    else:
        network = None
        kernel = output(f"{TOP}/scripts/own-kernel", args.kernel)
        # The sanitizer kernel has one CPU, and cases mostly wait, so several run at once. The
        # others use all CPUs.
        count = min(len(cases), os.cpu_count()) if args.kernel == "sanitize" else 1
        kernels = [OneKernel(image, out, args.kernel, kernel, sockets, i) for i in range(count)]
    capture = None
    if args.capture:
        if not network or not network.taps:
            sys.exit("cannot capture without taps")
        only = ["-f", f"tcp port {args.capture_port}"] if args.capture_port else []
        capture = subprocess.Popen(
            ["dumpcap", "-q", "-i", "tap-a", "-B", "256", *only, "-w", args.capture],
            stderr=open(f"{out}/capture", "w"), preexec_fn=die_with_parent)

    load = busy_loops() if args.loaded else []
    run = Run(args, out, cases)
    workers = [threading.Thread(target=run.work, args=[g], daemon=True) for g in kernels]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for loop in load:
        loop.kill()
        loop.wait()
    if capture:
        capture.send_signal(signal.SIGINT)
        capture.wait(30)
    if args.kernel in LEAKS:
        splats = sum(guests.splats for guests in kernels)
        say(f"{len(run.results)} cases, {splats} splats, {run.leaks} leaks; in all: {amounts(run.total)}")
    if args.repeat:
        tell_chances(cases, run.results)
    passed, failed, skipped = (list(run.results.values()).count(s) for s in ("PASS", "FAIL", "SKIP"))
    say(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
