#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Accepts connections, answers their MPA requests, and then reads nothing until it is killed."""

import argparse
import socket
import sys

sys.dont_write_bytecode = True
import wire  # noqa: E402

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("address")
parser.add_argument("port", type=int)
args = parser.parse_args()
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
listener.bind((args.address, args.port))
listener.listen()
conns = []
while True:
    conn, _ = listener.accept()
    conns.append(conn)
    request = wire.Frame(conn.recv(20, socket.MSG_WAITALL))
    if request.length:
        request.data = conn.recv(request.length, socket.MSG_WAITALL)
    enhanced = request.enhanced
    conn.sendall(wire.frame(wire.REPLY, wire.CRC | (wire.ENHANCED if enhanced else 0), request.revision,
                            wire.depths(1, 1) if enhanced else b""))
