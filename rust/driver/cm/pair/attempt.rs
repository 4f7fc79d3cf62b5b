// SPDX-License-Identifier: GPL-2.0

//! One attempt to connect to the peer.

use super::super::super::Device;
use super::super::{
    endpoint::{
        Endpoint,
        Handshake,
        Inner, //
    },
    mpa_io,
    new_socket,
    Teardown, //
};
use super::{
    doors::ATTEMPTS,
    Pair, //
};
use base::{
    errno,
    random, //
};
use iwarp::{
    cm::{
        self,
        Input,
        Side, //
    },
    mpa::{
        Config,
        Initiator,
        Revision,
        RtrSet,
        MAX_FRAME, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use soft::tcp::Socket;

/// Revision 2 whatever the parameter says: either end may speak first, and read depths are
/// negotiated. The other end is this driver, too.
fn config(dev: &Device, ird: u16, ord: u16) -> Config {
    Config {
        revision: Revision::Two,
        send_imm: true,
        resume: false,
        ..mpa_io::config(dev, ird, ord, RtrSet::ALL)
    }
}

impl Pair {
    /// Starts to connect to the peer.
    pub(super) fn connect(self: &Arc<Self>) -> Result {
        let dev = &self.dev;
        let mut nonce = [0; 8];
        random::fill(&mut nonce);
        let ord = {
            let mut wait = self.wait.lock();
            wait.hello.nonce = u64::from_ne_bytes(nonce);
            wait.ord
        };
        let machine = KBox::new(Initiator::new(config(dev, self.ird, ord)), GFP_KERNEL)?;
        let sock = self.call()?;
        let hs = Handshake::Initiator(machine, KVec::new());
        let fsm = cm::Endpoint::new(Side::Active, true);
        let ep = Endpoint::new(dev.clone(), sock, Inner::new(fsm, hs))?;
        let mut inner = ep.inner.lock();
        let opened = ep.open(self.remote.to_gid());
        if opened.is_ok() {
            inner.pair = Some(self.clone());
        }
        ep.report(&mut inner, Input::Begun(opened));
        opened?;
        let mut wait = self.wait.lock();
        let over = wait.over;
        if !over {
            wait.attempt = Some(ep.clone());
        }
        drop(wait);
        if over {
            ep.request_teardown(Teardown::Abort(errno::econnaborted()));
        }
        Ok(())
    }

    /// A socket that connects to the peer, from a privileged port.
    fn call(&self) -> Result<Socket> {
        let mut result = Err(errno::eaddrinuse());
        if !self.dev.params.lock().pairs {
            return Err(errno::eopnotsupp());
        }
        for attempt in 0..ATTEMPTS {
            let sock = new_socket(&self.dev, self.remote.family())?;
            if self.tos != 0 {
                sock.set_tos(self.tos)?;
            }
            let from = self.local.with_port(self.dev.doors.next_port(attempt));
            match sock.bind(&from) {
                Ok(()) => {}
                // A socket is listening at that port.
                Err(e) if e == errno::eaddrinuse() => continue,
                Err(e) => return Err(e),
            }
            match sock.connect(&self.remote) {
                Ok(_) => return Ok(sock),
                // Such a connection exists, or did a moment ago.
                Err(e) if e == errno::eaddrnotavail() => result = Err(e),
                Err(e) => return Err(e),
            }
        }
        result
    }

    /// Sends the request. It is made only when TCP is connected, because our PSN may be known by
    /// then.
    pub(in super::super) fn send_request(&self, sock: &Socket, machine: &Initiator) -> Result {
        let hello = self.wait.lock().hello;
        let mut frame = [0; MAX_FRAME];
        let len = machine
            .request(&hello.emit(), &mut frame)
            .map_err(|_| EINVAL)?;
        mpa_io::send(&sock.lock(), frame.get(..len).unwrap_or(&[]))
    }
}
