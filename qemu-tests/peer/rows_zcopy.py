# SPDX-License-Identifier: GPL-2.0
"""Messages that are sent by reference: the program's memory is its own again when the completion says so, and not before.

A message with a signalled completion and none behind it is copied if it is not large; so here what goes by reference is
unsignalled, and a signalled Send behind it tells."""

import contextlib
import subprocess

import verbs
import wire
from rows import OWN, row
from wire import CRC, ENHANCED

LARGE = 0x08
PARAMS = "large_fpdus=1 zcopy_min=4096"
SIZE = 32768
SINK = 0x5151  # an STag of the peer's


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
    """Nothing of the peer's gets through."""
    return netem("loss", "100%")


def counter(name):
    text = subprocess.run(["rdma", "statistic", "show", "link", "siw_cv/1"], check=True, stdout=subprocess.PIPE, text=True).stdout
    words = text.split()
    return int(words[words.index(name) + 1])


@contextlib.contextmanager
def by_reference(least=1):
    before = counter("zcopy_wrs")
    yield
    sent = counter("zcopy_wrs") - before
    assert sent >= least, f"{sent} sent by reference, not {least}"


def flow(t):
    conn = t.passive(CRC | ENHANCED | LARGE)
    conn.send(wire.write(1, 0))  # a responder may speak from here on
    return conn


def arrives(conn, k):
    segment, data = conn.message()
    assert segment.opcode == wire.WRITE and data == pattern(k), f"{segment}: not what was posted"
    segment, _ = conn.message()
    assert segment.opcode == wire.SEND, segment


@row("zcopy-ack", OWN, "what is sent by reference, and what was posted behind it, completes when it is acknowledged", OWN,
     params=PARAMS)
def zcopy_ack(t):
    conn, mr = flow(t), t.mr(SIZE)
    mr.put(pattern(1))
    with no_acks(), by_reference():
        conn.post_send(mr, 64, wr_id=1)
        conn.wc(wr_id=1)
        conn.post_write(mr, SINK, 0, wr_id=2, flags=0)
        conn.post_send(mr, 64, wr_id=3)
        t.cq.none(seconds=0.5)
    conn.wc(wr_id=3)
    conn.message()
    arrives(conn, 1)
    conn.echo()


@row("zcopy-reuse", OWN, "memory is written to as soon as the completion allows it: what arrives, by retransmission or not, is what was posted",
     OWN, params=PARAMS)
def zcopy_reuse(t):
    conn, mr = flow(t), t.mr(SIZE)
    with netem("delay", "1ms", "loss", "20%", near=True), by_reference(40):
        for k in range(40):
            mr.put(pattern(k))
            conn.post_write(mr, SINK, 0, flags=0)
            conn.post_send(mr, 64, wr_id=k)
            conn.wc(wr_id=k)
            mr.put(bytes(SIZE))
            arrives(conn, k)
    conn.echo()


@row("zcopy-local", OWN, "a peer on the same machine that reads late reads what was posted", OWN, params=PARAMS)
def zcopy_local(t):
    conn, mr = flow(t), t.mr(SIZE)
    mr.put(pattern(5))
    with by_reference():
        conn.post_write(mr, SINK, 0, flags=0)
        conn.post_send(mr, 64, wr_id=1)
        conn.wc(wr_id=1)
    # Acknowledged, and still in the peer's receive queue.
    mr.put(bytes(SIZE))
    arrives(conn, 5)
    conn.echo()


@row("zcopy-reset", OWN, "the connection ends, in whatever way, with memory in TCP's hands: each work request completes once, in order", OWN,
     params=PARAMS)
def zcopy_reset(t):
    def kill(conn):
        port = conn.raw.sock.getpeername()[1]
        subprocess.run(["ss", "-HKtn", f"sport = :{port}"], check=True, stdout=subprocess.DEVNULL)

    def leave(conn):
        conn.modify(verbs.QP_STATE, qp_state=verbs.ERR)

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
