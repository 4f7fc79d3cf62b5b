// SPDX-License-Identifier: GPL-2.0

//! The initiator's attempts to resume a session on another TCP connection.

use super::super::{
    endpoint::Endpoint,
    hook::Hook,
    mpa_io,
    new_socket,
    pair::PORT, //
};
use super::Resumption;
use base::addr::SockAddr;
use iwarp::{
    cm::Read,
    mpa::{
        Initiator,
        Reply,
        MAX_FRAME, //
    },
    session::Event,
    wire::session::{
        Address,
        Refused,
        Resume,
        Resumed, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use soft::tcp::{
    Socket,
    TcpState, //
};

/// One attempt.
pub(super) struct Attempt {
    pub(super) gen: u32,
    pub(super) socket: Arc<Socket>,
    pub(super) hook: Arc<Hook>,
    /// Once the request is sent.
    machine: Option<KBox<Initiator>>,
}

impl Attempt {
    /// Closes the TCP connection.
    pub(super) fn close(self) {
        self.socket.detach();
    }

    /// Reads the reply, as far as it has come.
    fn read(&mut self) -> Option<Event> {
        let gen = self.gen;
        let machine = self.machine.as_mut()?;
        let reply = match mpa_io::read(&self.socket, &mut **machine) {
            Read::Pending => return None,
            Read::Whole(Reply::Accepted(_)) => Resumed::parse(machine.private_data()).map(Ok),
            Read::Whole(Reply::Rejected(_)) => Refused::parse(machine.private_data()).map(Err),
            Read::End(_) | Read::Bad(_) => None,
        };
        Some(match reply {
            Some(reply) => Event::Replied { gen, reply },
            None => Event::Failed { gen },
        })
    }
}

impl Endpoint {
    /// Starts to connect to an address of the peer.
    pub(super) fn begin_attempt(
        self: &Arc<Self>,
        session: &mut Resumption,
        gen: u32,
        address: usize,
    ) -> Option<Event> {
        match self.connect_to(session, address) {
            Ok((socket, hook)) => {
                session.attempt = Some(Attempt {
                    gen,
                    socket,
                    hook,
                    machine: None,
                });
                None
            }
            Err(_) => Some(Event::Failed { gen }),
        }
    }

    fn connect_to(
        self: &Arc<Self>,
        session: &Resumption,
        address: usize,
    ) -> Result<(Arc<Socket>, Arc<Hook>)> {
        let address = session.offer.addresses.get(address).copied().flatten();
        let peer = match address.ok_or(EINVAL)? {
            Address::V4(addr) => SockAddr::V4 { addr, port: PORT },
            Address::V6(addr) => SockAddr::V6 {
                addr,
                port: PORT,
                scope: 0,
            },
        };
        let socket = Arc::new(new_socket(&self.dev, peer.family())?, GFP_KERNEL)?;
        let hook = Hook::new(self, false)?;
        socket.attach(hook.clone())?;
        if let Err(e) = socket.connect(&peer) {
            socket.detach();
            return Err(e);
        }
        Ok((socket, hook))
    }

    /// What has become of the attempt.
    pub(super) fn attempt_news(&self, session: &mut Resumption) -> Option<Event> {
        let attempt = session.attempt.as_mut()?;
        let gen = attempt.gen;
        let event = match (attempt.socket.state(), &attempt.machine) {
            (TcpState::SynSent | TcpState::SynRecv, _) => return None,
            (TcpState::Established, None) => return Some(Event::Connected { gen }),
            (_, Some(_)) => attempt.read()?,
            (_, None) => Event::Failed { gen },
        };
        if let Event::Failed { .. } = event {
            session.close(gen);
        }
        Some(event)
    }

    /// Sends the request.
    pub(super) fn send_resume(&self, session: &mut Resumption, resume: &Resume) -> Option<Event> {
        let attempt = session.attempt.as_mut()?;
        if self.request(attempt, resume).is_ok() {
            return None;
        }
        let gen = attempt.gen;
        session.close(gen);
        Some(Event::Failed { gen })
    }

    #[inline(never)] // A frame is made on the stack.
    fn request(&self, attempt: &mut Attempt, resume: &Resume) -> Result {
        let config = mpa_io::config_of_session(&self.dev);
        let machine = KBox::new(Initiator::new(config), GFP_KERNEL)?;
        let mut frame = [0; MAX_FRAME];
        let len = machine
            .request(&resume.emit(), &mut frame)
            .map_err(|_| EINVAL)?;
        mpa_io::send(&attempt.socket.lock(), frame.get(..len).unwrap_or(&[]))?;
        attempt.machine = Some(machine);
        Ok(())
    }

    /// Ends an attempt that takes too long, unless the reply is there.
    pub(super) fn abandon_attempt(&self, session: &mut Resumption, gen: u32) -> Event {
        let Some(mut attempt) = session.attempt.take() else {
            return Event::Failed { gen };
        };
        let Ok(frozen) = attempt.socket.freeze() else {
            attempt.close();
            return Event::Failed { gen };
        };
        // What has come behind the reply is acknowledged.
        if let Some(event @ Event::Replied { .. }) = attempt.read() {
            frozen.thaw();
            session.attempt = Some(attempt);
            return event;
        }
        attempt.close();
        // Without memory an RST goes out now.
        let _ = session.silent.push(frozen, GFP_KERNEL);
        Event::Failed { gen }
    }
}
