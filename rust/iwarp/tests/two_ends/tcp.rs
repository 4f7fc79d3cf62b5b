// SPDX-License-Identifier: GPL-2.0

//! A TCP connection in memory: two sockets and a wire in each direction, which delivers in order,
//! in pieces of any size, and when it is told to.

use iwarp::cm::Tcp;
use std::collections::VecDeque;

/// Bytes on the wire of one direction at the most: a send buffer.
const SPACE: usize = 600;

enum Item {
    Syn,
    SynAck,
    Bytes(VecDeque<u8>),
    Fin,
    Rst,
}

pub struct Sock {
    pub state: Tcp,
    pub inbox: VecDeque<u8>,
    pub was_reset: bool,
    peer_closed: bool,
    fin_acked: bool,
    /// Nobody reads any more.
    pub orphan: bool,
    wire: VecDeque<Item>,
    /// Bytes of the wire that have arrived.
    pub arrived: usize,
}

impl Sock {
    fn new(state: Tcp) -> Self {
        Self {
            state,
            inbox: VecDeque::new(),
            was_reset: false,
            peer_closed: false,
            fin_acked: false,
            orphan: false,
            wire: VecDeque::new(),
            arrived: 0,
        }
    }

    fn in_flight(&self) -> usize {
        let len = |item: &Item| match item {
            Item::Bytes(bytes) => bytes.len(),
            _ => 0,
        };
        self.wire.iter().map(len).sum()
    }
}

/// What has come of reading.
pub enum Recv {
    Bytes(Vec<u8>),
    Nothing,
    End,
}

/// Socket 0 connects, socket 1 is there once the SYN has arrived.
pub struct Net {
    pub socks: [Sock; 2],
}

impl Net {
    pub fn new() -> Self {
        let mut client = Sock::new(Tcp::Opening);
        client.wire.push_back(Item::Syn);
        Self {
            socks: [client, Sock::new(Tcp::Over)],
        }
    }

    pub fn state(&self, side: usize) -> Tcp {
        self.socks[side].state
    }

    pub fn unacked(&self, side: usize) -> bool {
        self.socks[side].in_flight() > 0
    }

    /// Takes as many bytes as there is space for; `None` if the connection is not open.
    pub fn send(&mut self, side: usize, bytes: &[u8]) -> Option<usize> {
        let sock = &mut self.socks[side];
        if !sock.state.is_open() {
            return None;
        }
        let len = bytes.len().min(SPACE.saturating_sub(sock.in_flight()));
        if len > 0 {
            let bytes = bytes[..len].iter().copied();
            match sock.wire.back_mut() {
                Some(Item::Bytes(last)) => last.extend(bytes),
                _ => sock.wire.push_back(Item::Bytes(bytes.collect())),
            }
        }
        Some(len)
    }

    pub fn recv(&mut self, side: usize, max: usize) -> Recv {
        let sock = &mut self.socks[side];
        let len = max.min(sock.inbox.len());
        if len > 0 {
            return Recv::Bytes(sock.inbox.drain(..len).collect());
        }
        match sock.was_reset || sock.peer_closed || sock.state == Tcp::Over {
            true => Recv::End,
            false => Recv::Nothing,
        }
    }

    pub fn shutdown(&mut self, side: usize) {
        let sock = &mut self.socks[side];
        if sock.state.is_open() {
            sock.state = Tcp::Closing;
            sock.wire.push_back(Item::Fin);
        }
    }

    /// Ends the connection with an RST.
    pub fn abort(&mut self, side: usize) {
        let sock = &mut self.socks[side];
        if sock.state != Tcp::Over || !sock.wire.is_empty() {
            sock.state = Tcp::Over;
            sock.wire.clear();
            sock.wire.push_back(Item::Rst);
        }
    }

    /// The socket is closed: nobody reads what comes from now on.
    pub fn release(&mut self, side: usize) {
        self.socks[side].orphan = true;
        if !self.socks[side].inbox.is_empty() {
            self.abort(side);
        }
    }

    pub fn can_deliver(&self, side: usize) -> bool {
        !self.socks[side].wire.is_empty()
    }

    /// Delivers what comes next from `side`, at most `max` bytes. Returns whether it was a SYN.
    pub fn deliver(&mut self, side: usize, max: usize) -> bool {
        let [a, b] = &mut self.socks;
        let (from, to) = if side == 0 { (a, b) } else { (b, a) };
        let Some(item) = from.wire.pop_front() else {
            return false;
        };
        match item {
            Item::Syn => {
                *to = Sock::new(Tcp::Established);
                to.wire.push_back(Item::SynAck);
                return true;
            }
            Item::SynAck if to.state == Tcp::Opening => to.state = Tcp::Established,
            Item::SynAck => {}
            Item::Bytes(mut bytes) => {
                let rest = bytes.split_off(max.min(bytes.len()));
                if !rest.is_empty() {
                    from.wire.push_front(Item::Bytes(rest));
                }
                from.arrived += bytes.len();
                if to.state == Tcp::Over || to.orphan {
                    self.abort(1 - side);
                    return false;
                }
                to.inbox.extend(bytes);
            }
            Item::Fin => {
                to.peer_closed = true;
                to.state = match to.state {
                    Tcp::Established => Tcp::PeerClosed,
                    Tcp::Closing if !to.fin_acked => Tcp::Closing,
                    _ => Tcp::Over,
                };
                from.fin_acked = true;
                from.state = match from.state {
                    Tcp::Closing if !from.peer_closed => Tcp::FinAcked,
                    _ => Tcp::Over,
                };
            }
            Item::Rst => {
                to.was_reset |= to.state != Tcp::Over;
                to.state = Tcp::Over;
                to.inbox.clear();
                to.wire.clear();
            }
        }
        false
    }

    /// Destroys the socket of `side` under its owner.
    pub fn kill(&mut self, side: usize) {
        self.socks[side].was_reset = true;
        self.socks[side].inbox.clear();
        self.abort(side);
    }
}
