# SPDX-License-Identifier: GPL-2.0
"""Memory windows: what a bind may ask for, what a bound window gives access to, and what ends it. RFC 5040 leaves the
bind to the verbs, and to the peer a window is an STag like any other."""

import contextlib
import copy
import ctypes
import random
import threading
import time

import verbs
import wire
from refusal import U64, carries, ended, refused, revoked_midway
from rows import OWN, row
from rows_memory import reading
from rows_zcopy import counter
from target import shown, wait_until
from verbs import LOCAL_WRITE, MW_BIND, ONE_TOUCH, REMOTE_READ, REMOTE_WRITE, ZERO_BASED

BINDABLE = LOCAL_WRITE | MW_BIND
TYPES = 1, 2
OPTIONAL = 1 << 20  # IBV_ACCESS_RELAXED_ORDERING


def writing(window, mr, data=b"bad", offset=0):
    return wire.write(window.rkey, mr.addr + offset, data)


def denied(t, mr, *ulpdus, code=(1, 1, 0), **more):
    """Each of these is refused on a connection of its own, and changes nothing."""
    before = mr.get()
    for ulpdu in ulpdus:
        refused(t.passive(), code, ulpdu, **more)
    assert mr.get() == before
    mr.intact()


def unbound(t, window, mr):
    """The window gives access to nothing."""
    denied(t, mr, writing(window, mr))
    denied(t, mr, reading(mr, stag=window.rkey), code=(0, 1, 0), read=True)


def written(conn, window, mr, data=b"through the window", offset=0):
    """The window gives access."""
    conn.send(writing(window, mr, data, offset))
    conn.echo()
    assert mr.get(offset, len(data)) == data
    mr.intact()


def invalidate(conn, rkey, status="SUCCESS"):
    conn.post(verbs.WR_LOCAL_INV, invalidate=rkey, wr_id=0x11f)
    return conn.wc(status, wr_id=0x11f)


@row("win-bounds", OWN, "A window gives access to its part of the region, to the byte, and the region to none", kind=OWN)
def win_bounds(t):
    for kind in TYPES:
        mr, conn = t.mr(65536, access=BINDABLE), t.passive()
        window = t.window(kind).bind(conn, mr, 4096, 4096)
        for offset, size in (4096, 4096), (4096, 1), (8191, 1), (5000, 3000):
            written(conn, window, mr, bytes([kind]) * size, offset)
        before = mr.get()
        for offset, size in (4095, 1), (4095, 2), (8192, 1), (8191, 2), (4096, 4097), (0, 1), (65535, 1):
            # A window of type 2 belongs to one connection, which a refusal ends.
            conn = t.passive()
            window = t.window(kind).bind(conn, mr, 4096, 4096)
            refused(conn, (1, 1, 1), writing(window, mr, bytes(size), offset))
        assert mr.get() == before
        # The region itself has no right of a peer.
        denied(t, mr, wire.write(mr.rkey, mr.addr + 4096, b"bad"), code=(0, 1, 2))


@row("win-rights", OWN, "A window grants what was bound, whatever the region grants", kind=OWN)
def win_rights(t):
    for region in BINDABLE, BINDABLE | REMOTE_WRITE | REMOTE_READ:
        for access in 0, REMOTE_WRITE, REMOTE_READ, REMOTE_WRITE | REMOTE_READ | LOCAL_WRITE:
            for kind in TYPES:
                mr, conn = t.mr(64, access=region, fill=3), t.passive()
                window = t.window(kind).bind(conn, mr, 0, 64, access)
                if access & REMOTE_READ:
                    conn.send(reading(mr, stag=window.rkey))
                    assert conn.message()[1] == mr.get(0, 8)
                if access & REMOTE_WRITE:
                    written(conn, window, mr)
                elif access & REMOTE_READ:
                    refused(conn, (0, 1, 2), writing(window, mr))
                else:
                    refused(conn, (0, 1, 2), reading(mr, stag=window.rkey), read=True)


@row("win-read-only-region", OWN, "A region that its owner cannot write to gives no window that a peer can", kind=OWN)
def win_read_only_region(t):
    for kind in TYPES:
        mr, conn = t.mr(64, access=MW_BIND, fill=3), t.passive()
        window = t.window(kind).bind(conn, mr, 0, 64, REMOTE_READ)
        conn.send(reading(mr, stag=window.rkey))
        assert conn.message()[1] == mr.get(0, 8)
        bind_fails(t, mr, kind, access=REMOTE_WRITE)


def bind_fails(t, mr, kind, offset=0, length=64, window=None, conn=None, flush=True, **more):
    """A bind fails, ends the connection with Terminate 0/0/00, and flushes what is behind it."""
    conn = conn or t.passive()
    window = window or t.window(kind)
    conn.post_recv(t.mr(64), wr_id=7)
    window.post(conn.id, mr, offset, length, wr_id=1, **more)
    conn.post_send(t.mr(64), 8, wr_id=2)
    conn.wc("MW_BIND_ERR", 1)
    # The receive may have been flushed before the Send was posted.
    assert {conn.wc("WR_FLUSH_ERR").wr_id for _ in range(2)} == {2, 7}
    carries(conn.terminate((0, 0, 0)), None)
    assert t.async_event() == "QP_FATAL"
    return window


@row("win-bind-rules", OWN, "Each rule of a bind that is broken: MW_BIND_ERR, 0/0/00, and the window stays as it was",
     kind=OWN, timeout=180)
def win_bind_rules(t):
    mr, pd = t.mr(4096, access=BINDABLE), t.make_pd()
    gone = t.mr(64, access=BINDABLE)
    for kind in TYPES:
        bind_fails(t, t.mr(4096), kind)  # no MW_BIND
        bind_fails(t, t.mr(4096, access=BINDABLE, pd=pd), kind)
        bind_fails(t, mr, kind, window=t.window(kind, pd))
        for offset, length in (4095, 2), (-1, 2), (-64, 64), (4096, 1), (0, 4097), (1 << 40, 1), (0, U64 - 1):
            bind_fails(t, mr, kind, offset, length)
        bind_fails(t, mr, kind, addr=U64 - 8, length=16)
        for access in MW_BIND, 8 << 4, 1 << 8, 1 << 18:
            bind_fails(t, mr, kind, access=access)
        bind_fails(t, t.mr(64, access=BINDABLE | ZERO_BASED), kind)
    # Optional flags that mean nothing here are ignored.
    t.window(1).bind(t.passive(), mr, 0, 64, REMOTE_WRITE | OPTIONAL)
    bind_fails(t, mr, 1, access=REMOTE_WRITE | ZERO_BASED)
    bind_fails(t, mr, 2, length=0)
    # What is bound stays bound: type 1 with its old key.
    conn = t.passive()
    window = t.window(1).bind(conn, mr, 0, 64)
    old = window.rkey
    bind_fails(t, mr, 1, 4000, 200, window=window)
    conn.send(wire.write(old, mr.addr, b"still"))
    conn.echo()
    assert mr.get(0, 5) == b"still"
    # A window of type 2 is bound once.
    window = t.window(2).bind(conn, mr, 0, 64)
    bind_fails(t, mr, 2, window=window, conn=conn)
    gone.dereg()


@row("win-rebind", OWN, "A window of type 1 is bound anew while it is bound; its old key is dead", kind=OWN)
def win_rebind(t):
    first, second, conn = t.mr(64, access=BINDABLE), t.mr(64, access=BINDABLE), t.passive()
    window = t.window(1).bind(conn, first, 0, 64)
    written(conn, window, first)
    old = window.rkey
    window.bind(conn, second, 0, 64)
    assert window.rkey != old and window.rkey >> 8 == old >> 8
    written(conn, window, second)
    denied(t, first, wire.write(old, first.addr, b"bad"))
    first.dereg()
    written(conn, window, second, b"once more")


@row("win-unbind", OWN, "A bind of length 0 unbinds a window of type 1; a window that was never bound gives nothing",
     kind=OWN)
def win_unbind(t):
    mr, conn = t.mr(64, access=BINDABLE), t.passive()
    for kind in TYPES:
        unbound(t, t.window(kind), mr)
    window = t.window(1).bind(conn, mr, 0, 64)
    old = window.rkey
    window.bind(conn, None)
    denied(t, mr, wire.write(old, mr.addr, b"bad"))
    unbound(t, window, mr)
    window.bind(conn, mr, 0, 64)
    written(conn, window, mr)


@row("win-invalidate", OWN, "LOCAL_INV ends a window of type 2, which can be bound again; it may be repeated", kind=OWN)
def win_invalidate(t):
    mr, conn = t.mr(64, access=BINDABLE), t.passive()
    window = t.window(2)
    assert invalidate(conn, window.rkey).opcode == verbs.WC_LOCAL_INV  # never bound
    for _ in range(3):
        window.bind(conn, mr, 0, 64)
        written(conn, window, mr)
        for _ in range(2):
            invalidate(conn, window.rkey)
    refused(conn, (1, 1, 0), writing(window, mr))


@row("win-invalidate-rules", OWN,
     "LOCAL_INV of what cannot be invalidated: LOC_QP_OP_ERR, 0/0/00, and it stays", kind=OWN)
def win_invalidate_rules(t):
    mr, holder = t.mr(64, access=BINDABLE | REMOTE_WRITE), t.passive()
    one, two = t.window(1).bind(holder, mr, 0, 64), t.window(2).bind(holder, mr, 0, 64)
    foreign = t.window(2, t.make_pd())
    for key in one.rkey, two.rkey, two.rkey ^ 1, mr.rkey, foreign.rkey, 0, 0xffffff00:
        conn = t.passive()
        invalidate(conn, key, "LOC_QP_OP_ERR")
        carries(conn.terminate((0, 0, 0)), None)
        assert t.async_event() == "QP_FATAL"
    for window in one, two:
        written(holder, window, mr)


@row("win-send-inv", OWN, "Send with Invalidate ends a window of type 2, and the receive names it", kind=OWN)
def win_send_inv(t):
    mr, conn = t.mr(64, access=BINDABLE), t.passive()
    window = t.window(2).bind(conn, mr, 0, 64)
    written(conn, window, mr)
    for _ in range(2):
        conn.post_recv(t.mr(64), wr_id=1)
        conn.send(wire.send(conn.msn, b"done", opcode=wire.SEND_INV, inv=window.rkey))
        conn.msn += 1
        wc = conn.wc(wr_id=1)
        assert wc.wc_flags & 8 and wc.imm_data == window.rkey, f"{wc}, {wc.wc_flags}, {wc.imm_data:#x}"
        assert shown(mr.rkey)["windows"] == "0"
    window.bind(conn, mr, 0, 64)
    written(conn, window, mr)
    conn.post_recv(t.mr(64), wr_id=1)
    conn.send(wire.send(conn.msn, b"done", opcode=wire.SEND_SE_INV, inv=window.rkey))
    conn.wc(wr_id=1)
    refused(conn, (1, 1, 0), writing(window, mr))


@row("win-send-inv-rules", OWN, "A peer invalidates no window of type 1, of another connection or without its key",
     kind=OWN)
def win_send_inv_rules(t):
    mr, holder = t.mr(64, access=BINDABLE), t.passive()
    one, two = t.window(1).bind(holder, mr, 0, 64), t.window(2).bind(holder, mr, 0, 64)
    local = t.window(2).bind(holder, mr, 0, 64, 0)
    stale = counter("stale_invalidate")
    for key, code in (one.rkey, (0, 2, 9)), (two.rkey, (0, 1, 9)), (mr.rkey, (0, 2, 9)):
        conn = t.passive()
        conn.post_recv(t.mr(64), wr_id=1)
        refused(conn, code, wire.send(1, b"invalidate", opcode=wire.SEND_INV, inv=key))
        conn.wc("REM_INV_REQ_ERR", 1)
    for window in one, two:
        written(holder, window, mr)
    # Without a right of the peer there is nothing to give back.
    holder.post_recv(t.mr(64), wr_id=1)
    refused(holder, (0, 1, 2), wire.send(holder.msn, b"invalidate", opcode=wire.SEND_INV, inv=local.rkey))
    holder.wc("REM_INV_REQ_ERR", 1)
    assert counter("stale_invalidate") - stale == 4


@row("win-owner", OWN, "Type 2 serves the connection that has bound it, type 1 any of its protection domain", kind=OWN)
def win_owner(t):
    mr, conn = t.mr(64, access=BINDABLE), t.passive()
    both = REMOTE_WRITE | REMOTE_READ
    one, two = t.window(1).bind(conn, mr, 0, 64, both), t.window(2).bind(conn, mr, 0, 64, both)
    written(t.passive(), one, mr)
    denied(t, mr, writing(two, mr), code=(1, 1, 2))
    denied(t, mr, reading(mr, stag=two.rkey), code=(0, 1, 3), read=True)
    stranger = t.passive(pd=t.make_pd())
    refused(stranger, (1, 1, 2), writing(one, mr))
    for window in one, two:
        written(conn, window, mr, b"its own")


@row("win-local", OWN, "A window is not for the work requests of its owner: LOC_PROT_ERR", kind=OWN)
def win_local(t):
    for kind in TYPES:
        mr, conn = t.mr(64, access=BINDABLE), t.passive()
        window = t.window(kind).bind(conn, mr, 0, 64, REMOTE_WRITE | REMOTE_READ | LOCAL_WRITE)
        conn.post_send(sges=[(mr.addr, 8, window.rkey)], wr_id=1)
        conn.wc("LOC_PROT_ERR", 1)
        assert t.async_event() == "QP_FATAL"


@row("win-zero-based", OWN, "Offsets of a zero-based window count from its beginning", kind=OWN)
def win_zero_based(t):
    mr, conn = t.mr(4096, access=BINDABLE), t.passive()
    window = t.window(2).bind(conn, mr, 1000, 100, REMOTE_WRITE | ZERO_BASED)
    conn.send(wire.write(window.rkey, 0, b"first"), wire.write(window.rkey, 96, b"last"))
    conn.echo()
    assert mr.get(1000, 5) == b"first" and mr.get(1096, 4) == b"last"
    refused(conn, (1, 1, 1), wire.write(window.rkey, 97, b"last"))


@row("win-dereg", OWN, "A region takes the windows with it that are bound to it, and no others", kind=OWN)
def win_dereg(t):
    for kind in TYPES:
        mr, other, conn = t.mr(64, access=BINDABLE), t.mr(64, access=BINDABLE), t.passive()
        window, stays = t.window(kind).bind(conn, mr, 0, 64), t.window(kind).bind(conn, other, 0, 64)
        written(conn, window, mr)
        mr.dereg()
        written(conn, stays, other)
        # It can be bound again.
        window.bind(conn, other, 0, 64)
        written(conn, window, other, b"another region")
        other.dereg()
        refused(conn, (1, 1, 0), writing(window, other))


@row("win-dealloc", OWN, "A window that is bound can be deallocated", kind=OWN)
def win_dealloc(t):
    for kind in TYPES:
        mr, conn = t.mr(64, access=BINDABLE), t.passive()
        window = t.window(kind).bind(conn, mr, 0, 64)
        written(conn, window, mr)
        window.dealloc()
        refused(conn, (1, 1, 0), writing(window, mr))


def kept(target, member, kind):
    """A copy of a region or window for a bind: the library frees its own when it is given up."""
    twin = copy.copy(target)
    setattr(twin, member, ctypes.pointer(kind.from_buffer_copy(getattr(target, member).contents)))
    return twin


@row("win-bind-race", OWN, "Binds, while region and window are given up or changed, leave nothing bound to what was", kind=OWN)
def win_bind_race(t):
    other = t.mr(64, access=BINDABLE)

    def change(mr):
        with contextlib.suppress(OSError):  # a window is bound
            mr.change(other)

    for n in range(60):
        # A passive end would bind later.
        mr, conn, peer = t.mr(64, access=BINDABLE), t.active(), t.passive()
        window = t.window(1 + n // 3 % 2)
        if window.kind == 1:
            written(peer, window.bind(conn, mr, 0, 64), mr)
            window.bind(conn, None)
        bound, binding = kept(mr, "mr", verbs.MrStruct), kept(window, "mw", verbs.MwStruct)

        def end(what=(mr.dereg, window.dealloc, lambda mr=mr: change(mr))[n % 3], pause=random.random() / 2000):
            time.sleep(pause)
            what()

        ended = threading.Thread(target=end)
        ended.start()
        binding.post(conn.id, bound, 0, 64, wr_id=1)
        conn.wc(None, wr_id=1)
        ended.join()
        if n % 3 != 2 or mr.rkey != bound.rkey:
            refused(peer, (1, 1, 0), writing(binding, mr))
        conn.id.destroy()
        peer.id.destroy()


@row("win-qp-end", OWN, "The end of a queue pair unbinds its windows of type 2, and no others", kind=OWN)
def win_qp_end(t):
    for end in "reset", "destroy":
        mr, conn, other = t.mr(64, access=BINDABLE), t.passive(), t.passive()
        one, two = t.window(1).bind(conn, mr, 0, 64), t.window(2).bind(conn, mr, 0, 64)
        written(conn, two, mr)
        if end == "reset":
            conn.reset()
            conn.event("DISCONNECTED")
        else:
            conn.id.destroy()
        written(other, one, mr)
        # It can be bound on another one, so it is not bound.
        two.bind(other, mr, 0, 64)
        written(other, two, mr)
        invalidate(other, two.rkey)
        written(other, one, mr)


@row("win-order", OWN, "A bind comes before later work requests, and after a Read if it is fenced", kind=OWN)
def win_order(t):
    mr, conn = t.mr(64, access=BINDABLE), t.passive()
    window = t.window(2)
    for n in range(50):
        window.post(conn.id, mr, 0, 64, wr_id=1, flags=0)
        conn.post_send(t.mr(64), 8, wr_id=2)
        # The peer knows of the window by this message.
        conn.message()
        conn.send(writing(window, mr, bytes([n])))
        conn.wc(wr_id=2)
        conn.echo()
        assert mr.get(0, 1) == bytes([n])
        invalidate(conn, window.rkey)
    conn.post_read(t.mr(64), 0x77, 0x1000, 8, wr_id=1)
    request, free = conn.segment(), window.rkey
    window.post(conn.id, mr, 0, 64, wr_id=2, flags=verbs.SIGNALED | verbs.FENCE)
    conn.target.cq.none(conn.id.qp_num)
    assert shown(free)["valid"] == "0"
    asked = wire.ReadRequest(request.data)
    conn.send(wire.read_response(asked.sink_stag, asked.sink_to, bytes(8)))
    conn.wc(wr_id=1)
    conn.wc(wr_id=2)
    written(conn, window, mr)


@row("win-revoked-under-fire", OWN, "No byte is placed through a window once LOCAL_INV has completed", kind=OWN)
def win_revoked_under_fire(t):
    for _ in range(25):
        mr, conn = t.mr(8192, access=BINDABLE), t.passive()
        window = t.window(2).bind(conn, mr, 0, 8192)
        fpdus = [conn.raw.tx.fpdu(wire.write(window.rkey, mr.addr, bytes([n]) * 1400)) for n in range(1, 9)]

        def fire(push, fpdus=fpdus):
            try:
                while True:
                    for fpdu in fpdus:
                        push(fpdu)
            except OSError:
                pass  # the device has closed the connection

        gun = threading.Thread(target=fire, args=(conn.push,))
        gun.start()
        wait_until(lambda mr=mr: mr.get(1399, 1) != b"\0", "something is placed")
        conn.post(verbs.WR_LOCAL_INV, invalidate=window.rkey, wr_id=1)
        conn.wc(wr_id=1)
        placed = mr.get()
        gun.join()
        assert mr.get() == placed, "placed after the invalidation"
        mr.dereg()
        conn.id.destroy()


@row("win-touch", OWN, "A one-touch window is unbound by the first message, and can be bound again", kind=OWN)
def win_touch(t):
    for kind in TYPES:
        mr, conn = t.mr(65536, access=BINDABLE), t.passive()
        window, admitted = t.window(kind), counter("one_touch")
        for n in range(3):
            window.bind(conn, mr, 0, 65536, REMOTE_WRITE | REMOTE_READ | ONE_TOUCH)
            if n < 2:
                data = bytes([n + 1]) * 65536
                parts = [(at, data[at:at + 1400]) for at in range(0, 65536, 1400)]
                conn.send(*[wire.write(window.rkey, mr.addr + at, part, at + 1400 >= 65536) for at, part in parts])
                conn.echo()
                assert mr.get() == data
            else:
                conn.send(reading(mr, 65536, stag=window.rkey))
                assert conn.message()[1] == mr.get()
            # Unbound.
            assert shown(mr.rkey)["windows"] == "0"
            assert counter("one_touch") - admitted == n + 1
        # A later message is refused.
        refused(conn, (1, 1, 0), writing(window, mr))
        mr.dereg()


@row("win-touch-race", OWN, "Of two connections that write through a one-touch window, one ends its message", kind=OWN)
def win_touch_race(t):
    mr, first, second = t.mr(64, access=BINDABLE), t.passive(), t.passive()
    window = t.window(1).bind(first, mr, 0, 64, REMOTE_WRITE | ONE_TOUCH)
    first.send(wire.write(window.rkey, mr.addr, b"1", last=False))
    wait_until(lambda: mr.get(0, 1) == b"1", "a part that is not the last is placed")
    second.send(writing(window, mr, b"22", 1))
    second.echo()
    refused(first, (1, 1, 0), writing(window, mr, b"3", 3))
    assert mr.get(0, 4) == b"122\0"
    mr.dereg()


@row("win-touch-anew", OWN, "The end of a message through a one-touch window does not end a later bind of it", kind=OWN)
def win_touch_anew(t):
    old, new = t.mr(1 << 22, access=BINDABLE, fill=3), t.mr(1 << 22, access=BINDABLE, fill=4)
    conn, owner = t.passive(), t.passive()
    window = t.window(1).bind(owner, old, 0, old.size, REMOTE_READ | ONE_TOUCH)
    revoked_midway(conn, old, reading(old, old.size, stag=window.rkey), lambda: window.bind(owner, new, 0, new.size))
    ended(conn)
    written(owner, window, new)
    # Nor does the end of a Write whose other parts went to the old key.
    conn, access = t.passive(), REMOTE_WRITE | ONE_TOUCH
    window = t.window(1).bind(owner, old, 0, 64, access)
    conn.send(wire.write(window.rkey, old.addr, b"old", last=False))
    wait_until(lambda: old.get(0, 3) == b"old", "a part that is not the last is placed")
    window.bind(owner, new, 0, 64, access)
    conn.send(wire.write(window.rkey, new.addr, b""))
    conn.echo()
    written(owner, window, new, b"the one message")


@row("win-foreign-key", OWN, "A window with another key is another STag", kind=OWN)
def win_foreign_key(t):
    for kind in TYPES:
        mr, conn = t.mr(64, access=BINDABLE), t.passive()
        window = t.window(kind).bind(conn, mr, 0, 64)
        for bit in 0, 7:
            denied(t, mr, wire.write(window.rkey ^ 1 << bit, mr.addr, b"bad"), code=(1, 1, 2) if kind == 2 else (1, 1, 0))
        written(conn, window, mr)


@row("win-shown", OWN, "debugfs shows what a window is bound to, and that a one-touch region is spent", kind=OWN)
def win_shown(t):
    mr, conn = t.mr(64, access=BINDABLE), t.passive()
    once = t.mr(64, access=LOCAL_WRITE | REMOTE_WRITE | ONE_TOUCH)
    one, two = t.window(1), t.window(2)
    assert [shown(window.rkey)["valid"] for window in (one, two)] == ["0", "0"]
    one.bind(conn, mr, 0, 64)
    two.bind(conn, mr, 32, 16)
    for window, kind, qp, length in (one, "Mw1", 0, 64), (two, "Mw2", conn.id.qp_num, 16):
        line = shown(window.rkey)
        assert (line["kind"], line["valid"], int(line["qp"])) == (kind, "1", qp), line
        assert (int(line["length"], 16), int(line["region"], 16)) == (length, mr.rkey), line
    assert shown(mr.rkey)["windows"] == "2"
    invalidate(conn, two.rkey)
    line = shown(two.rkey)
    assert (line["valid"], line["qp"], int(line["region"], 16)) == ("0", "0", 0), line
    assert shown(mr.rkey)["windows"] == "1"
    line = shown(once.rkey)
    assert (line["valid"], line["touched"]) == ("1", "0"), line
    conn.send(wire.write(once.rkey, once.addr, b"once"))
    conn.echo()
    line = shown(once.rkey)
    assert (line["valid"], line["touched"]) == ("0", "1"), line
