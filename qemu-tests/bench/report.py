# SPDX-License-Identifier: GPL-2.0
"""Medians, spread and ratios of the bench cases' figures, which are lines of PLACE CONTENDER MEASURE VALUE.
See guest/bench.sh."""

import collections
import os
import re
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.realpath(__file__))
TESTS = os.path.dirname(HERE)
sys.path.append(TESTS)
import accelerator

CONTENDERS = ("siw", "siw-ours", "siw-nocrc", "siw-copy", "siw-segment", "c-siw", "rxe", "tcp", "tcp-sendfile")
PLACES = {
    "pair": "two QEMU guests, virtio-net with TSO, stock kernel",
    "loop": "User Mode Linux, loopback, MTU 65536",
    "veth": "User Mode Linux, veth, MTU 1500",
}
# Pattern of a measure, its title, unit.
MEASURES = (
    (r"lat-mpi-(\d+)", "MPI ping-pong (NetPIPE), {}, one way", "us"),
    (r"bw-mpi-(\d+)", "MPI ping-pong (NetPIPE), {}", "Gb/s"),
    (r"instructions-trip", "instructions of both ends, 64 B Sends there and back", ""),
    (r"instructions-kib", "instructions of both ends, 1 KiB of 1 MiB Writes", ""),
    (r"sleeping-(\w+)-(\d+)", "{} bandwidth without polling, {}", "Gb/s"),
    (r"bw-(\w+)-(\d+)", "{} bandwidth, {}", "Gb/s"),
    (r"ops-(\w+)-(\d+)", "{} operations, {}", "k/s"),
    (r"bind", "windows of 4 KiB bound and invalidated", "k/s"),
    (r"reg-small", "regions of 4 KiB registered and deregistered", "k/s"),
    (r"rate-(\d+)", "64 B Writes, {} QP", "k/s"),
    (r"lat-(\w+)-(\d+)-(\w+)", "{} latency, {}, {}", "us"),
    (r"cpu-both", "CPU of both ends, 1 MiB Writes", "ns/KiB"),
    (r"cpu-(\w+)", "CPU of the {} end, 1 MiB Writes", "ns/KiB"),
    (r"nvme-randread-(\d+)-(\d)", "NVMe 4 KiB random reads, depth {}, {} queue(s)", "IOPS"),
    (r"nvme-(\w+)-(\d)", "NVMe 128 KiB {}s, depth 8, {} queue(s)", "MB/s"),
    (r"cpu-nvme-randread-(\d+)-(\d)", "  CPU of both ends, random reads, depth {}, {} queue(s)", "ns/KiB"),
    (r"cpu-nvme-(\w+)-(\d)", "  CPU of both ends, {}s, {} queue(s)", "ns/KiB"),
    (r"nfs-randread", "NFS 4 KiB random reads, depth 16", "IOPS"),
    (r"nfs-(\w+)", "NFS 1 MiB {}s, depth 8", "MB/s"),
    (r"cpu-nfs-randread", "  CPU of both ends, random reads", "ns/KiB"),
    (r"cpu-nfs-(\w+)", "  CPU of both ends, {}s", "ns/KiB"),
    (r"qps-(\d+)-gbps", "64 KiB Writes over {} QPs", "Gb/s"),
    (r"qps-(\d+)-jain", "  fairness (Jain), {} QPs", ""),
    (r"qps-(\d+)-memory", "  memory of one of {} idle QPs", "B"),
    (r"qps-(\d+)-cpu", "  CPU, {} QPs", "ns/KiB"),
    (r"qps-(\d+)-gbps-two", "64 KiB Writes over {} QPs, two CPUs", "Gb/s"),
    (r"qps-(\d+)-jain-two", "  fairness (Jain), {} QPs, two CPUs", ""),
    (r"qps-(\d+)-memory-two", "  memory of one of {} idle QPs, two CPUs", "B"),
    (r"qps-(\d+)-cpu-two", "  CPU, {} QPs, two CPUs", "ns/KiB"),
    (r"regions-(\d+)-reg", "registration of one of {} regions of 4 KiB", "us"),
    (r"regions-(\d+)-dereg", "deregistration of one of {} regions of 4 KiB", "us"),
    (r"regions-(\d+)-memory", "memory of one of {} regions of 4 KiB", "B"),
    (r"regions-(\d+)-rate", "64 B Writes from {} regions by turns", "k/s"),
    (r"idle-(\d+)-memory", "memory of one of {} idle connections", "B"),
    (r"beside-(\w+)-bw", "64 KiB Writes of a user, beside {}", "Gb/s"),
    (r"beside-(\w+)-lat", "64 B Send latency of a user, beside {}", "us"),
    (r"stalled-(\w+)-(without|beside)", "64 KiB Writes {1} a QP stalled by a {0}", "Gb/s"),
    (r"pinned-(\w+)", "{} bandwidth, 64 KiB, memory pinned", "Gb/s"),
    (r"ondemand-(\w+)", "{} bandwidth, 64 KiB, memory on demand", "Gb/s"),
    (r"reg", "registration of 1 GiB", "ms"),
    (r"dereg", "deregistration of 1 GiB", "ms"),
    (r"reg-memory", "memory for 1 GiB registered", "B"),
    (r"reg-huge", "registration of 1 GiB of huge pages", "ms"),
    (r"dereg-huge", "deregistration of 1 GiB of huge pages", "ms"),
    (r"reg-huge-memory", "memory for 1 GiB of huge pages registered", "B"),
)
LESS_IS_BETTER = re.compile(r"(lat|cpu|dereg|instructions)\b|reg\b(?!-small)|.*(memory|lat|cpu|reg)(-two)?$")
TOLERANCE = 0.03  # compare marks more than this as worse
STORAGE = [f"nvme-{io}-{queues}" for queues in (1, 2) for io in ("randread-1", "randread-16", "read", "write")]
BANDWIDTH = [f"bw-{op}-{size}" for op in ("write", "send", "read") for size in (65536, 1 << 20)]


def targets():
    """(place, measure, contender, measure to compare with, contender to compare with, bound, whether more is better).
    What has no CRC by default, C siw, is compared with this driver without CRC."""
    for bw in BANDWIDTH:
        stream = "bw-write-" + bw.split("-")[2]
        sleeping = bw.replace("bw", "sleeping")
        # perftest polls, which takes time from the kernel on the only CPU of a guest. iperf3 and
        # the program of the tests sleep.
        for ours in (sleeping, bw):
            yield "pair", ours, "siw", stream, "tcp", 1, True
            yield "pair", ours, "siw-nocrc", stream, "tcp", 1.2, True
        yield "loop", sleeping, "siw-nocrc", stream, "tcp", 0.9, True
        yield "veth", sleeping, "siw-nocrc", stream, "tcp", 0.8, True
        yield "pair", bw, "siw-nocrc", bw, "c-siw", 5, True
        yield "loop", bw, "siw-nocrc", bw, "c-siw", {"write": 1.3, "send": 1.3, "read": 2}[bw.split("-")[1]], True
    for qps in (1, 16):
        yield "loop", f"qps-{qps}-gbps", "siw-nocrc", f"qps-{qps}-gbps", "c-siw", 1.2, True
    for place in PLACES:
        for latency in (f"lat-{op}-{size}-{which}" for op in ("send", "write") for size in (64, 4096)
                        for which in ("median", "p99")):
            yield place, latency, "siw-nocrc", latency, "c-siw", 1, False
    for place in ("pair", "loop"):
        yield place, "rate-1", "siw-nocrc", "rate-1", "c-siw", 2, True
        yield place, "lat-send-64-median", "siw-nocrc", "lat-send-64-median", "tcp", 1.25, False
        yield place, "lat-read-64-median", "siw-nocrc", "lat-read-64-median", "c-siw", 0.6, False
        for measure, other, bound in (("ops-atomic-8", "ops-read-8", 0.8), ("bind", "reg-small", 1),
                                      ("ops-write_imm-64", "ops-write_send-64", 1),
                                      ("ops-write_imm-4096", "ops-write_send-4096", 1)):
            yield place, measure, "siw-ours", other, "siw-ours", bound, True
        for measure, other in (("atomic-8", "read-8"), ("write_imm-64", "write_send-64"),
                               ("write_imm-4096", "write_send-4096")):
            yield place, f"lat-{measure}-median", "siw-ours", f"lat-{other}-median", "siw-ours", 1.1, False
    for storage in STORAGE:
        yield "pair", storage, "siw", storage, "tcp", 0.9, True
        yield "pair", storage, "siw-nocrc", storage, "tcp", 1, True
    for op in ("read", "write", "randread"):
        yield "pair", f"nfs-{op}", "siw", f"nfs-{op}", "tcp", 1, True
    for place, bound in (("pair", 0.5), ("loop", 0.6), ("veth", 0.9)):
        yield place, "cpu-both", "siw-nocrc", "cpu-both", "tcp", bound, False
    yield "pair", "cpu-send", "siw", "cpu-send", "siw-copy", 0.6, False
    for qps in (256, 1024):
        yield "pair", f"qps-{qps}-gbps", "siw", "qps-1-gbps", "siw", 0.95, True
        yield "pair", f"qps-{qps}-jain", "siw", None, None, 0.98, True
    yield "pair", "idle-10000-memory", "siw", None, None, 16 << 10, False
    # "spinning" has no target: a user who only uses half of the CPU costs more than these bounds.
    for attack in ("small", "large", "reads", "connects", "registrations"):
        yield "pair", f"beside-{attack}-bw", "siw", "beside-nobody-bw", "siw", 0.5, True
        yield "pair", f"beside-{attack}-lat", "siw", "beside-nobody-lat", "siw", 10, False
    for kind, who in (("peer", "siw"), ("page", "siw"), ("bind", "siw-ours")):
        yield "pair", f"stalled-{kind}-beside", who, f"stalled-{kind}-without", who, 0.95, True
    for op in ("write", "send", "read"):
        for place in ("pair", "loop"):
            yield place, f"ondemand-{op}", "siw", f"pinned-{op}", "siw", 0.95, True
    yield "pair", "reg-huge", "siw", "reg", "siw", 0.1, False
    yield "pair", "reg-huge-memory", "siw", "reg-memory", "siw", 0.1, False


def size_of(text):
    if not text.isdigit():
        return text
    n = int(text)
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n >= factor:
            return f"{n // factor} {unit}"
    return f"{n} B"


def title(measure):
    for pattern, text, unit in MEASURES:
        m = re.fullmatch(pattern, measure)
        if m:
            sizes = measure.startswith(("bw", "lat", "ops", "sleeping"))
            return text.format(*(size_of(g) if sizes else g for g in m.groups())), unit
    sys.exit(f"what is {measure}?")


def order(measure):
    return [next(i for i, m in enumerate(MEASURES) if re.fullmatch(m[0], measure)),
            *(int(w) if w.isdigit() else w for w in measure.split("-")[1:])]


def amount(value):
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def spread(values):
    """Half of the distance between the best and the worst."""
    median = statistics.median(values)
    return f" ±{50 * (max(values) - min(values)) / median:.0f}%" if len(values) > 1 and median else ""


class Figures:
    def __init__(self, path):
        self.values = collections.defaultdict(list)
        self.pairs = collections.defaultdict(list)  # ratios to TCP in the turn beside
        self.failed = set()
        with open(path) as f:
            for line in f:
                place, contender, measure, value, *beside = line.split()
                if value == "cannot":
                    self.failed.add((place, contender, measure))
                    continue
                self.values[place, contender, measure].append(float(value))
                for other in map(float, beside):
                    self.values[place, "tcp", measure].append(other)
                    self.pairs[place, contender, measure].append(float(value) / other)

    def median(self, *key):
        return statistics.median(self.values[key]) if key in self.values else None

    def cell(self, *key):
        values = self.values.get(key)
        if not values:
            return "cannot" if key in self.failed else "-"
        return amount(statistics.median(values)) + spread(values)

    def ratios(self, *key, than):
        """The quartiles of the ratio round by round: what disturbs the machine for long disturbs both."""
        a, b = self.values.get(key, []), self.values.get((key[0], than, key[2]), [])
        rounds = max(map(len, self.values.values()))
        if len(a) != rounds or len(b) != rounds or not all(b):
            return None
        each = [x / y for x, y in zip(a, b)]
        return statistics.quantiles(each, n=4, method="inclusive") if len(each) > 1 else each * 3

    def against(self, place, who, measure, whom, other):
        """The ratio of medians, or those of all pairs of turns; none if something is missing."""
        pairs = self.pairs.get((place, who, measure))
        if pairs and whom == "tcp":
            return pairs
        a, b = self.median(place, who, measure), self.median(place, whom, other)
        return [a / b] if a is not None and b else []

    def ratio(self, place, who, measure, than):
        ratios = self.against(place, who, measure, than, measure)
        return f"{statistics.median(ratios):.2f}{spread(ratios)}" if ratios else "-"


def table(rows):
    """Markdown that also reads well in a terminal."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    rows.insert(1, ["-" * w for w in widths])
    return ["| " + " | ".join(text.ljust(w) for text, w in zip(row, widths)) + " |" for row in rows]


def judged(figures):
    rows = [["what", "where", "against", "reached", "wanted", ""]]
    for place, measure, who, other, whom, bound, more in targets():
        ratios = figures.against(place, who, measure, whom, other) if other else figures.values.get((place, who, measure))
        if not ratios:
            continue
        ratio = statistics.median(ratios)
        met = ratio >= bound if more else ratio <= bound
        name = title(measure)[0].strip() + {"siw-nocrc": ", CRC off", "siw-ours": ", our library"}.get(who, "")
        against = "" if not other else title(other)[0] if whom == who else whom
        reached = f"{ratio:.{0 if bound > 100 else 2}f}{spread(ratios)}"
        rows.append([name, place, against, reached, f"{'at least' if more else 'at most'} {bound}",
                     "met" if met else "missed"])
    return rows


def measured(figures, place):
    tried = {(who, measure) for p, who, measure in {*figures.values, *figures.failed} if p == place}
    present = [c for c in CONTENDERS if any(c == who for who, _ in tried)]
    rows = [["median", "", *present, "siw-nocrc / c-siw", "siw / tcp"]]
    for measure in sorted({measure for _, measure in tried}, key=order):
        rows.append([*title(measure), *(figures.cell(place, c, measure) for c in present),
                     figures.ratio(place, "siw-nocrc", measure, than="c-siw"),
                     figures.ratio(place, "siw", measure, than="tcp")])
    return rows


def compared(figures, place):
    """This driver and that of another tree. A measure is worse if it is so in about three rounds of four, and by more
    than the tolerance in half of them."""
    rows = [["median", "", "old", "new", "new / old", "middle half", ""]]
    for measure in sorted({m for p, _, m in figures.values if p == place}, key=order):
        row = [*title(measure), *(figures.cell(place, who, measure) for who in ("old-siw", "siw"))]
        quartiles = figures.ratios(place, "siw", measure, than="old-siw")
        if quartiles:
            low, median, high = quartiles
            less = LESS_IS_BETTER.match(measure)
            worse = median > 1 + TOLERANCE and low > 1 if less else median < 1 - TOLERANCE and high < 1
            row += [f"{median:.2f}", f"{low:.2f} to {high:.2f}", "worse" if worse else ""]
        else:
            row += [figures.ratio(place, "siw", measure, than="old-siw"), "-", "incomplete"]
        rows.append(row)
    return rows


def output(*cmd):
    return subprocess.run(cmd, stdout=subprocess.PIPE, text=True, cwd=HERE).stdout.strip()


def facts():
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
        model = re.search(r"^model name\s*:\s*(.*)", f.read(), re.M)
    kernel = os.environ["SIW_RELEASE"]
    how = accelerator.accelerator(output("../image", "stock").splitlines()[-1] + "/vmlinuz").upper()
    return [
        f"- {time.strftime('%Y-%m-%d')}, commit {output('git', 'rev-parse', '--short', 'HEAD')}",
        f"- {os.cpu_count()} CPUs, {model[1] if model else 'of a kind unknown'}; Linux {os.uname().release}",
        f"- pair: {output('qemu-system-x86_64', '--version').splitlines()[0]}, {how}, one vCPU a guest, Linux {kernel}",
        f"- loop, veth: User Mode Linux {kernel.split('+')[0]} with {min(4, os.cpu_count())} CPUs, both ends in one kernel",
    ]


def plot(figures, path):
    """Bandwidth of Writes over the size of messages."""
    data, panels = [], []
    for place in PLACES:
        lines = []
        for contender in CONTENDERS:
            points = sorted((int(m.split("-")[2]), figures.median(p, w, m)) for p, w, m in list(figures.values)
                            if p == place and w == contender and m.startswith("bw-write-"))
            if len(points) > 2:
                name = f"${place}_{contender.replace('-', '_')}"
                data += [f"{name} << EOD", *(f"{x} {y}" for x, y in points), "EOD"]
                lines.append(f'{name} using 1:2 with linespoints pt 7 ps 0.4 lw 2 title "{contender}"')
        if lines:
            panels += [f'set title "{PLACES[place]}"', "plot " + ", ".join(lines)]
    if not panels:
        return
    script = [
        *data, f'set terminal svg size 720,{340 * (len(panels) // 2)} dynamic background "white"',
        f'set output "{path}"', f"set multiplot layout {len(panels) // 2},1", "set logscale x 2", "set key left top",
        "set xtics (" + ", ".join(f'"{size_of(str(1 << n))}" {1 << n}' for n in range(6, 25, 2)) + ")",
        'set xlabel "size of a message (iperf3: a write)"', 'set ylabel "Gb/s"', "set yrange [0:*]", "set grid", *panels,
    ]
    subprocess.run(["gnuplot"], input="\n".join(script) + "\n", text=True, check=True)


def main():
    figures, short = Figures(sys.argv[1]), "--short" in sys.argv
    if not figures.values:
        sys.exit("nothing was measured")
    places = [p for p in PLACES if any(p == place for place, _, _ in figures.values)]
    if "--old" in sys.argv:
        for place in places:
            print(f"{place}: {PLACES[place]}", *table(compared(figures, place)), sep="\n")
        return
    targets_now = judged(figures)
    met = [row[-1] for row in targets_now].count("met")
    out = ["# Results of make bench", "", *facts(), "",
           "Medians of all rounds, and half the distance between the best and the worst of them. siw is this driver "
           "with the settings it has by default, CRC included; siw-nocrc has the CRC off, as C siw. siw-copy copies all "
           "payload, and siw-segment has FPDUs of one segment, as with foreign peers. siw-ours has our provider library. "
           "TCP is one stream of iperf3 (tcp-sendfile: with -Z), "
           "and for latency a ping-pong over one socket. NVMe and NFS take turns with the same over TCP, and ratios "
           "are those of neighbouring turns. perftest polls; "
           "figures \"without polling\" are those of a program that sleeps until something is complete, as iperf3 does. "
           "Latencies of Write and Send are of one way.", "", "## Targets", "", *table(targets_now)]
    for place in places:
        out += ["", f"## {place}: {PLACES[place]}", "", *table(measured(figures, place))]
    if short:
        out = [line for place in places for line in table(measured(figures, place))]
    else:
        out += ["", "![bandwidth of Writes over the size of messages](bench.svg)"]
        plot(figures, f"{TESTS}/bench.svg")
        with open(f"{TESTS}/BENCH.md", "w") as f:
            f.write("\n".join(out) + "\n")
        out.append(f"{met} of {len(targets_now) - 2} targets met; written to {TESTS}/BENCH.md and bench.svg")
    print("\n".join(out))


if __name__ == "__main__":
    main()
