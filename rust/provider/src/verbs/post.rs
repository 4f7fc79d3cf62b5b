// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Posting: from work requests to elements of queues.

use super::{
    Locked,
    Qp,
    RecvQueue, //
};
use crate::{
    ring::{
        Payload,
        Recvs,
        Sends,
        Wqe, //
    },
    sys::{
        abi::{
            op,
            send_flags,
            wqe,
            wr_opcode,
            MAX_INLINE,
            MAX_SGE, //
        },
        Errno,
        Offer,
        RecvWrs,
        SendWr,
        SendWrs,
        Sge, //
    },
};

/// The flags of a send work request that mean something.
const KNOWN_FLAGS: u32 =
    send_flags::FENCE | send_flags::INLINE | send_flags::SIGNALED | send_flags::SOLICITED;

/// A list, if it has not more elements than allowed.
fn limited(list: &[Sge], max: u32) -> Result<&[Sge], Errno> {
    match u32::try_from(list.len()) {
        Ok(len) if len <= max => Ok(list),
        _ => Err(Errno::EINVAL),
    }
}

/// A list with one more element behind it. `EINVAL` if there is no room for that.
fn append<'a>(list: &[Sge], last: Sge, room: &'a mut [Sge; MAX_SGE]) -> Result<&'a [Sge], Errno> {
    let (head, tail) = room.split_at_mut_checked(list.len()).ok_or(Errno::EINVAL)?;
    head.copy_from_slice(list);
    *tail.first_mut().ok_or(Errno::EINVAL)? = last;
    let len = list.len().saturating_add(1);
    Ok(room.get(..len).unwrap_or_default())
}

impl Qp {
    /// Posts until one fails, and tells the driver.
    pub(super) fn send(&self, wrs: &mut SendWrs<'_>) -> Result<(), Errno> {
        self.sends.with(|queue| {
            let mut result = Ok(());
            while let Some(wr) = wrs.current() {
                result = self.push(queue, &wr);
                if result.is_err() {
                    break;
                }
                wrs.step();
            }
            match self.publish(queue) {
                Ok(()) => result,
                Err((error, taken)) => {
                    wrs.rewind(taken);
                    Err(error)
                }
            }
        })
    }

    /// Gives the driver what was pushed, and tells it. Fails with the number of work requests that
    /// the driver has taken although the call failed; it has not taken all of them.
    pub(super) fn publish(&self, queue: &mut Sends) -> Result<(), (Errno, u32)> {
        let first = queue.position();
        queue.publish();
        if queue.position() == first || !queue.needs_doorbell(first) {
            return Ok(());
        }
        let Err(error) = self.doorbell.ring() else {
            return Ok(());
        };
        // The queue pair takes no work requests in its state, or the device is gone. What a call
        // refuses must not be executed later.
        let posted = queue.position().wrapping_sub(first);
        match queue.take_back(first) {
            taken if taken == posted => Ok(()),
            taken => Err((error, taken)),
        }
    }

    /// Judges a work request, and appends it.
    pub(super) fn push(&self, queue: &mut Sends, wr: &SendWr<'_>) -> Result<(), Errno> {
        let (op, remote) = match wr.opcode() {
            wr_opcode::BIND_MW if self.windows => return self.push_bind(queue, wr),
            wr_opcode::LOCAL_INV if self.windows => {
                return self.push_local(
                    queue,
                    (wr.id(), wr.flags()),
                    op::INVAL_STAG,
                    (0, wr.invalidate_rkey()),
                    &[],
                );
            }
            wr_opcode::ATOMIC_FETCH_AND_ADD if self.rfc7306 => {
                return self.push_atomic(queue, wr, op::FETCH_AND_ADD, 1);
            }
            wr_opcode::ATOMIC_CMP_AND_SWP if self.rfc7306 => {
                return self.push_atomic(queue, wr, op::COMP_AND_SWAP, 2);
            }
            wr_opcode::SEND_WITH_IMM if self.rfc7306 => (op::SEND_WITH_IMM, (0, 0)),
            wr_opcode::RDMA_WRITE_WITH_IMM if self.rfc7306 => (op::WRITE_WITH_IMM, wr.remote()),
            wr_opcode::SEND => (op::SEND, (0, 0)),
            wr_opcode::SEND_WITH_INV => (op::SEND_REMOTE_INV, (0, wr.invalidate_rkey())),
            wr_opcode::RDMA_WRITE => (op::WRITE, wr.remote()),
            wr_opcode::RDMA_READ => (op::READ, wr.remote()),
            _ => return Err(Errno::EINVAL),
        };
        let flags = wr.flags();
        if flags & !KNOWN_FLAGS != 0 {
            return Err(Errno::EINVAL);
        }
        let immediate =
            matches!(op, op::SEND_WITH_IMM | op::WRITE_WITH_IMM).then(|| wr.immediate());
        let mut bytes;
        let mut longer;
        let payload = if flags & send_flags::INLINE == 0 {
            let list = limited(wr.sges()?, self.max_sge)?;
            match immediate {
                Some(lkey) => {
                    let last = Sge {
                        lkey,
                        ..Default::default()
                    };
                    longer = [Sge::default(); MAX_SGE];
                    Payload::List(append(list, last, &mut longer)?)
                }
                None => Payload::List(list),
            }
        } else if op == op::READ {
            return Err(Errno::EINVAL);
        } else {
            // Any number of elements, as long as they fit.
            bytes = [0; MAX_INLINE];
            let len = wr.copy_inline(&mut bytes)?;
            Payload::Inline(bytes.get(..len).unwrap_or_default(), immediate.unwrap_or(0))
        };
        queue.push(&Wqe {
            id: wr.id(),
            op,
            flags: element_flags(flags, self.sig_all),
            remote,
            payload,
        })
    }
}

impl Qp {
    /// Pushes the bind of a window. The one element of its list is the part of the region, with the
    /// access flags in place of a length.
    fn push_bind(&self, queue: &mut Sends, wr: &SendWr<'_>) -> Result<(), Errno> {
        let bind = wr.bind()?;
        let part = Sge {
            addr: bind.addr,
            length: bind.access,
            lkey: bind.region,
        };
        let remote = (bind.length, bind.rkey);
        self.push_local(queue, (wr.id(), wr.flags()), op::BIND_MW, remote, &[part])
    }

    /// Pushes an atomic operation, whose operands are behind the buffer for the old value.
    fn push_atomic(
        &self,
        queue: &mut Sends,
        wr: &SendWr<'_>,
        op: u8,
        operands: usize,
    ) -> Result<(), Errno> {
        let [sink] = wr.sges()? else {
            return Err(Errno::EINVAL);
        };
        let operand = |addr| Sge {
            addr,
            ..Default::default()
        };
        let [first, second] = wr.operands().map(operand);
        let list = [*sink, first, second];
        let list = list.get(..operands.saturating_add(1)).unwrap_or_default();
        let flags = wr.flags() & !send_flags::SOLICITED;
        self.push_local(queue, (wr.id(), flags), op, wr.target(), list)
    }

    /// Pushes a work request without payload.
    fn push_local(
        &self,
        queue: &mut Sends,
        (id, flags): (u64, u32),
        op: u8,
        remote: (u64, u32),
        list: &[Sge],
    ) -> Result<(), Errno> {
        if flags & !(send_flags::FENCE | send_flags::SIGNALED) != 0 {
            return Err(Errno::EINVAL);
        }
        queue.push(&Wqe {
            id,
            op,
            flags: element_flags(flags, self.sig_all),
            remote,
            payload: Payload::List(list),
        })
    }
}

/// The flags of the element; payload has its own.
fn element_flags(flags: u32, sig_all: bool) -> u16 {
    let mut to = 0;
    if sig_all || flags & send_flags::SIGNALED != 0 {
        to |= wqe::SIGNALLED;
    }
    if flags & send_flags::SOLICITED != 0 {
        to |= wqe::SOLICITED;
    }
    if flags & send_flags::FENCE != 0 {
        to |= wqe::READ_FENCE;
    }
    to
}

impl RecvQueue {
    /// Maps a queue.
    pub(super) fn map(queue: &Offer, max_sge: u32) -> Result<Self, Errno> {
        Ok(Self {
            queue: Locked::new(Some(Recvs::map(queue, 0)?)),
            max_sge,
        })
    }

    /// Posts until one fails. The driver looks for receives when it needs them.
    pub(super) fn post(&self, wrs: &mut RecvWrs<'_>) -> Result<(), Errno> {
        let mut queue = self.queue.lock();
        let queue = queue.as_mut().ok_or(Errno::EIO)?;
        while let Some(wr) = wrs.current() {
            queue.push(wr.id(), limited(wr.sges()?, self.max_sge)?)?;
            wrs.step();
        }
        Ok(())
    }
}
