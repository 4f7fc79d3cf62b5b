# SPDX-License-Identifier: GPL-2.0
"""Messages that are sent by reference: the program may reuse its memory after the completion, and not before.

A signalled message with none behind it is copied unless it is large. So the messages sent by reference here are
unsignalled, and a signalled Send behind them completes.

Data that a peer reads has no completion here, and may be written to while it is read. So it is sent by reference only
without CRC."""

import contextlib
import fcntl
import socket
import struct
import subprocess
import termios

import verbs
import wire
from refusal import refused
from rows import OWN, row
from target import wait_until
from wire import CRC, ENHANCED

LARGE = 0x08
PARAMS = "large_fpdus=1 zcopy_min=4096"
NO_CRC = PARAMS + " crc=0"
EQL = PARAMS + " eql=1"
READS = "zcopy_reads"
SIZE = 32768
SMALL = 8192
SINK = 0x5151  # an STag of the peer's
# From <linux/tcp.h>.
TCP_REPAIR, TCP_REPAIR_QUEUE, TCP_QUEUE_SEQ = 19, 20, 21
TCP_REPAIR_OFF, TCP_RECV_QUEUE, TCP_SEND_QUEUE = -1, 1, 2


def pattern(k):
    return bytes((i * 7 + k) & 0xff for i in range(256)) * (SIZE // 256)


def tc(*args, near=False):
    inside = [] if near else ["ip", "netns", "exec", "peer"]
    subprocess.run([*inside, "tc", "qdisc", *args[:1], "dev", "cv0" if near else "cv1", "root", *args[1:]], check=True)


@contextlib.contextmanager
def netem(*args, near=False):
    tc("replace", "netem", *args, near=near)
    try:
        yield
    finally:
        tc("del", near=near)


def no_acks():
    """Drops everything that the peer sends."""
    return netem("loss", "100%")


def counter(name):
    text = subprocess.run(["rdma", "statistic", "show", "link", "siw_cv/1"], check=True, stdout=subprocess.PIPE, text=True).stdout
    words = text.split()
    return int(words[words.index(name) + 1])


@contextlib.contextmanager
def by_reference(least=1, what="zcopy_wrs"):
    before = counter(what)
    yield
    sent = counter(what) - before
    assert sent >= least, f"{sent} sent by reference, not {least}"


def flow(t, flags=LARGE):
    conn = t.passive(CRC | ENHANCED | flags)
    conn.send(wire.write(1, 0))  # a responder may send from here on
    return conn


def socket_of(conn, how):
    """What `ss` says of the device's socket."""
    port = conn.raw.sock.getpeername()[1]
    return subprocess.run(["ss", how, f"sport = :{port}"], check=True, stdout=subprocess.PIPE, text=True).stdout


def kill(conn):
    socket_of(conn, "-HKtn")


def leave(conn):
    conn.modify(verbs.QP_STATE, qp_state=verbs.ERR)


def arrives(conn, k, size=SIZE):
    segment, data = conn.message()
    assert segment.opcode == wire.WRITE and data == pattern(k)[:size], f"{segment}: not what was posted"
    segment, _ = conn.message()
    assert segment.opcode == wire.SEND, segment


@row("zcopy-ack", OWN, "a message sent by reference, and those posted behind it, complete when it is acknowledged", OWN,
     params=PARAMS)
def zcopy_ack(t):
    conn, mr = flow(t), t.mr(SIZE)
    mr.put(pattern(1))
    with no_acks(), by_reference():
        conn.post_send(mr, 64, wr_id=1)
        conn.wc(wr_id=1)
        # There is send space for both, so only the acknowledgement is missing.
        conn.post_write(mr, SINK, 0, SMALL, wr_id=2, flags=0)
        conn.post_send(mr, 64, wr_id=3)
        t.cq.none(seconds=0.5)
    conn.wc(wr_id=3)
    conn.message()
    arrives(conn, 1, SMALL)
    conn.echo()


@row("zcopy-ack-eql", OWN, "zcopy-ack, decided by the length of TCP's queue", OWN, params=EQL)
def zcopy_ack_eql(t):
    zcopy_ack(t)


@contextlib.contextmanager
def copied_unheard(t):
    """Copied messages, of which the peer acknowledges nothing until the end of the context."""
    conn, mr = flow(t, 0), t.mr(SMALL, fill=3)
    with no_acks():
        conn.post_write(mr, SINK, 0, wr_id=1)
        conn.post_send(mr, 64, wr_id=2)
        yield conn


def completed(conn):
    conn.wc(wr_id=1)
    conn.wc(wr_id=2)


@row("ack-off", OWN, "copied messages complete when TCP has taken them, though the peer acknowledges nothing", OWN, params="ack_completions=0")
def ack_off(t):
    with copied_unheard(t) as conn:
        completed(conn)


@row("ack-on", OWN, "with ack_completions=1 they complete when they are acknowledged", OWN, params="ack_completions=1")
def ack_on(t):
    with copied_unheard(t) as conn:
        t.cq.none(seconds=0.5)
    completed(conn)
    conn.message()
    conn.message()
    conn.echo()


@row("zcopy-reuse", OWN, "memory is written to as soon as the completion allows it: what arrives, by retransmission or not, is what was posted",
     OWN, params=PARAMS)
def zcopy_reuse(t):
    with by_reference(40):
        reuse(flow(t), t.mr(SIZE), 40)


@row("zcopy-reuse-eql", OWN, "zcopy-reuse, decided by the length of TCP's queue", OWN, params=EQL)
def zcopy_reuse_eql(t):
    zcopy_reuse(t)


@row("zcopy-reuse-segments", OWN,
     "zcopy-reuse with FPDUs of one segment (C siw: the signalled Send completes while TCP still sends the unsignalled Write before it)", OWN)
def zcopy_reuse_segments(t):
    reuse(flow(t, 0), t.mr(SIZE), 20)


def reuse(conn, mr, rounds):
    with netem("delay", "1ms", "loss", "20%", near=True):
        for k in range(rounds):
            mr.put(pattern(k))
            conn.post_write(mr, SINK, 0, flags=0)
            conn.post_send(mr, 64, wr_id=k)
            conn.wc(wr_id=k)
            mr.put(bytes(SIZE))
            arrives(conn, k)
    conn.echo()


@row("zcopy-inline", OWN, "inline payload, which has no memory of its own, is copied, even with zcopy_min=1", OWN,
     params="large_fpdus=1 zcopy_min=1")
def zcopy_inline(t):
    conn, mr = flow(t), t.mr(SIZE)
    mr.put(pattern(3))
    for flags in 0, verbs.SIGNALED:
        # With another message behind it, and alone.
        conn.post_send(mr, 64, wr_id=1, flags=verbs.INLINE | flags)
    conn.wc(wr_id=1)
    for _ in range(2):
        segment, data = conn.message()
        assert segment.opcode == wire.SEND and data == pattern(3)[:64], f"{segment}: not what was posted"
    conn.echo()


def acknowledge(conn):
    """The peer's TCP acknowledges everything that the device's TCP has sent, received or not."""
    sock = conn.raw.sock
    (here, there), (near, far) = sock.getsockname(), sock.getpeername()
    sock.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
    numbers = []
    for queue in TCP_SEND_QUEUE, TCP_RECV_QUEUE:
        sock.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR_QUEUE, queue)
        numbers.append(sock.getsockopt(socket.IPPROTO_TCP, TCP_QUEUE_SEQ) & 0xffffffff)
    sock.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, TCP_REPAIR_OFF)
    seq, received = numbers
    with conn.target.setup.inside():
        raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)
    header = struct.pack(">HHIIBBHHH", there, far, seq, (received + unheard_of(conn)) & 0xffffffff, 5 << 4, 0x10, 0xffff, 0, 0)
    pseudo = socket.inet_aton(here) + socket.inet_aton(near) + struct.pack(">HH", socket.IPPROTO_TCP, len(header))
    words = sum(struct.unpack(f">{(len(pseudo) + len(header)) // 2}H", pseudo + header))
    while words >> 16:
        words = (words & 0xffff) + (words >> 16)
    with contextlib.closing(raw):
        raw.sendto(header[:16] + struct.pack(">H", words ^ 0xffff) + header[18:], (near, 0))


def unheard_of(conn):
    """Bytes that the device's TCP holds and the peer has not acknowledged."""
    _, port = conn.raw.sock.getpeername()
    text = subprocess.run(["ss", "-HOtn", f"sport = :{port}", "dport", f"= :{conn.raw.sock.getsockname()[1]}"], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    return int(text.split()[2])


def early(conn, mr):
    """A Write by reference and a signalled Send behind it, which are acknowledged while they wait in a queue of this machine."""
    mr.put(pattern(1))
    conn.post_write(mr, SINK, 0, SMALL, wr_id=1, flags=0)
    conn.post_send(mr, 64, wr_id=2)
    wait_until(lambda: unheard_of(conn) > SMALL, "both are with TCP")
    acknowledge(conn)
    wait_until(lambda: unheard_of(conn) == 0, "the device's TCP believes it")


@row("zcopy-early-ack", OWN, "a peer that acknowledges what has not been sent gets what was posted, not what is written there after the completion",
     OWN, params=PARAMS)
def zcopy_early_ack(t):
    conn, mr = flow(t), t.mr(SIZE)
    with netem("delay", "2s", near=True), by_reference():
        early(conn, mr)
        conn.wc(wr_id=2)
        mr.put(bytes(SIZE))
        arrives(conn, 1, SMALL)
    conn.echo()


@row("zcopy-early-ack-dropped", OWN, "data that a peer acknowledges too early completes when it has left the queue, and not before, even if it is dropped",
     OWN, params=PARAMS)
def zcopy_early_ack_dropped(t):
    conn, mr = flow(t), t.mr(SIZE)
    with netem("delay", "1000s", near=True), by_reference():
        early(conn, mr)
        t.cq.none(seconds=0.5)
    conn.wc(wr_id=2)


@contextlib.contextmanager
def jumbo_frames():
    def mtu(size):
        subprocess.run(["ip", "link", "set", "cv0", "mtu", size], check=True)
        subprocess.run(["ip", "-n", "peer", "link", "set", "cv1", "mtu", size], check=True)
    mtu("9000")
    try:
        yield
    finally:
        mtu("1500")


@row("zcopy-jumbo", OWN, "a peer that does not take large FPDUs may put its acknowledgement off: no completion waits for it, with jumbo frames "
     "either", OWN, params=PARAMS)
def zcopy_jumbo(t):
    with jumbo_frames():
        conn, mr = flow(t, 0), t.mr(SIZE)
        mr.put(pattern(4))
        with no_acks():
            conn.post_write(mr, SINK, 0, SMALL, wr_id=1, flags=0)
            conn.post_send(mr, 64, wr_id=2)
            conn.wc(wr_id=2, timeout=5)
        arrives(conn, 4, SMALL)
        conn.echo()


@row("zcopy-local", OWN, "a peer on the same machine that reads late gets what was posted", OWN, params=PARAMS)
def zcopy_local(t):
    conn, mr = flow(t), t.mr(SIZE)
    mr.put(pattern(5))
    with by_reference():
        conn.post_write(mr, SINK, 0, flags=0)
        conn.post_send(mr, 64, wr_id=1)
        conn.wc(wr_id=1)
    # The data is acknowledged, but still in the peer's receive queue.
    mr.put(bytes(SIZE))
    arrives(conn, 5)
    conn.echo()


@row("zcopy-reset", OWN, "the connection ends, in any way, while TCP holds memory: each work request completes once, in order", OWN,
     params=PARAMS)
def zcopy_reset(t):
    for end in kill, leave, lambda conn: conn.disconnect():
        conn, mr = flow(t), t.mr(SIZE)
        with no_acks(), by_reference():
            for wr_id in 1, 2, 3:
                conn.post_write(mr, SINK, 0, wr_id=wr_id, flags=0)
            conn.post_send(mr, 64, wr_id=4)
            end(conn)
            for wr_id in 1, 2, 3, 4:
                conn.wc("WR_FLUSH_ERR", wr_id=wr_id)
            t.cq.none()
        conn.id.destroy()
        mr.dereg()
    # No completion is asked for, and the region goes first.
    conn, mr = flow(t), t.mr(SIZE)
    with no_acks():
        conn.post_write(mr, SINK, 0, flags=0)
        mr.dereg()
        conn.id.destroy()


def read_flow(t, flags=0):
    return t.passive(flags | ENHANCED | LARGE), t.mr(SIZE)


def read(conn, msn, mr):
    conn.send(wire.read_request(msn, SINK, 0, SIZE, mr.rkey, mr.addr))


def waiting(conn):
    """Bytes the peer has not taken."""
    return struct.unpack("i", fcntl.ioctl(conn.raw.sock, termios.FIONREAD, bytes(4)))[0]


@contextlib.contextmanager
def under_way(conn, mr, *how):
    """Loses or delays what the device sends, and waits until its TCP holds the answer."""
    with netem(*how, near=True), by_reference(1, READS):
        before = counter("tx_bytes")
        read(conn, 1, mr)
        wait_until(lambda: counter("tx_bytes") - before > SIZE, "the answer is with TCP")
        yield


def answered(conn, k):
    segment, data = conn.message()
    assert segment.opcode == wire.READ_RESPONSE and data == pattern(k), f"{segment}: not what was there"


@row("zcopy-read", OWN, "a Read is answered by reference, without CRC: what arrives, by retransmission or not, is what was there", OWN,
     params=NO_CRC)
def zcopy_read(t):
    conn, mr = read_flow(t)
    # Each loss in a row doubles the time to the next try. Of one packet in twenty, seven in a row do not occur.
    with netem("delay", "1ms", "loss", "5%", near=True), by_reference(40, READS):
        for k in range(40):
            mr.put(pattern(k))
            read(conn, 1 + k, mr)
            answered(conn, k)
    conn.echo()


@row("zcopy-read-crc", OWN, "with CRC a Read is answered by copy: its source may be written to meanwhile", OWN, params=NO_CRC)
def zcopy_read_crc(t):
    conn, mr = read_flow(t, CRC)
    before = counter(READS)
    mr.put(pattern(3))
    read(conn, 1, mr)
    answered(conn, 3)
    assert counter(READS) == before, "sent by reference"


@row("zcopy-read-local", OWN, "a peer on the same machine that takes the answer late gets what was there when it was sent", OWN, params=NO_CRC)
def zcopy_read_local(t):
    conn, mr = read_flow(t)
    mr.put(pattern(5))
    with by_reference(1, READS):
        read(conn, 1, mr)
        wait_until(lambda: waiting(conn) > SIZE, "the answer comes")
    mr.put(bytes(SIZE))
    answered(conn, 5)


@row("zcopy-read-dereg", OWN, "a region whose answer is under way is deregistered: that waits for the acknowledgement or, after a second, ends the "
     "connection; nothing that is written there afterwards arrives", OWN, params=NO_CRC)
def zcopy_read_dereg(t):
    conn, mr = read_flow(t)
    mr.put(pattern(7))
    with under_way(conn, mr, "delay", "100ms"):
        mr.dereg()
        mr.put(pattern(8))
    answered(conn, 7)
    refused(conn, (0, 1, 0), wire.read_request(2, SINK, 0, SIZE, mr.rkey, mr.addr), read=True)
    conn, mr = read_flow(t)
    with under_way(conn, mr, "loss", "100%"):
        mr.dereg()
    conn.push(bytes(8))
    assert conn.any_end() == (b"", "rst")
    # Its TCP acknowledges what it has room for. The rest waits until there is more.
    conn, _ = read_flow(t)
    large = t.mr(4 << 20, fill=9)
    with by_reference(1, READS):
        conn.send(wire.read_request(1, SINK, 0, large.size, large.rkey, large.addr))
        conn.segment()
        wait_until(lambda: "(persist" in socket_of(conn, "-Htno"), "the peer's window is closed")
    large.dereg()
    large.put(bytes([8]) * large.size)
    data, end = conn.any_end()
    assert end == "rst" and bytes([8]) * 64 not in data, f"{end} after {len(data)} bytes"


@row("zcopy-read-reset", OWN, "the connection ends, in any way, while TCP holds the data of a Read", OWN, params=NO_CRC)
def zcopy_read_reset(t):
    for end in kill, leave, lambda conn: conn.disconnect():
        conn, mr = read_flow(t)
        with under_way(conn, mr, "loss", "100%"):
            end(conn)
            conn.id.destroy()
            mr.dereg()
