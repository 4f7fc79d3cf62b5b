// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Random entries of queues, and whoever polls them.

use super::{
    fake::*,
    input::Input,
    objects::{
        any,
        Objects, //
    },
    *, //
};

/// A completion has a meaning, whatever the kernel has written.
fn check(status: u32, opcode: u32, flags: u32) {
    assert!(status <= ibv_wc_status_IBV_WC_GENERAL_ERR);
    assert!(matches!(
        opcode,
        0..=ibv_wc_opcode_IBV_WC_LOCAL_INV
            | ibv_wc_opcode_IBV_WC_RECV..=ibv_wc_opcode_IBV_WC_RECV_RDMA_WITH_IMM
    ));
    assert!([
        0,
        ibv_wc_flags_IBV_WC_WITH_IMM,
        ibv_wc_flags_IBV_WC_WITH_INV
    ]
    .contains(&flags));
}

impl Objects {
    /// The kernel writes to the queues that most have mapped.
    pub(super) fn scribble(&self, input: &mut Input<'_>) {
        let key = [SQ_KEY, RQ_KEY, CQ_KEY, NEW_KEY][input.below(4)];
        let words = Shared::map(&Offer::of(&self.device, key, 1), 512).unwrap();
        for _ in 0..=input.below(4) {
            // Mostly the head of an element in one of the queues.
            let at = match input.below(5) {
                0 => input.below(256),
                at => input.below(4) * [15, 14, 4, 4][at - 1] + 1,
            };
            let word = match input.below(8) {
                0 => 0,
                1 => input.u64(),
                2 => 1 | (u64::from(input.u32()) << 8),
                // A completion that has some meaning.
                kind => {
                    let (flags, op) = (u64::from(input.u8() | 1), input.below(16) as u64);
                    let status = if kind == 3 { input.below(16) as u64 } else { 0 };
                    flags | (op << 8) | (status << 16)
                }
            };
            words[at].store(word, Relaxed);
        }
    }

    pub(super) fn poll(&self, input: &mut Input<'_>) {
        let Some(cq) = self.free_cq(input) else {
            return;
        };
        let room = input.below(6);
        // No room behind it.
        let mut wcs = vec![ibv_wc::default(); room].into_boxed_slice();
        let asked = if input.below(8) == 0 {
            -1
        } else {
            room as c_int
        };
        // SAFETY: The queue is valid, and the room is as large as said.
        let got = unsafe { self.program.ops.poll_cq.unwrap()(cq, asked, wcs.as_mut_ptr()) };
        let Ok(got) = usize::try_from(got) else {
            assert_eq!((asked, got), (-1, -(EINVAL as c_int)));
            return;
        };
        assert!(got <= room && asked >= 0);
        for wc in &wcs[..got] {
            check(wc.status, wc.opcode, wc.wc_flags);
        }
    }

    /// Polls one by one. The kernel may write meanwhile. A poll may go on later, or never.
    pub(super) fn poll_ex(&mut self, input: &mut Input<'_>) {
        let Some(plain) = any(&self.cqs, input) else {
            return;
        };
        let cq: *mut ibv_cq_ex = plain.cast();
        // SAFETY: All are made as if they were extended, without functions.
        if unsafe { (*cq).start_poll }.is_none() {
            return;
        }
        let open = self.polled.iter().position(|polled| *polled == plain);
        match open {
            Some(at) => drop(self.polled.remove(at)),
            None if !self.start_poll(cq, input) => return,
            None => (),
        }
        let rounds = input.u8();
        for _ in 0..rounds % 6 {
            // SAFETY: The queue is valid.
            let status = unsafe { (*cq).status };
            check(status, call!(cq, read_opcode), call!(cq, read_wc_flags));
            let with = call!(cq, read_wc_flags) != 0;
            assert!(with || call!(cq, read_imm_data) == 0);
            for zero in [
                call!(cq, read_vendor_err),
                call!(cq, read_src_qp),
                call!(cq, read_slid),
                call!(cq, read_sl).into(),
                call!(cq, read_dlid_path_bits).into(),
            ] {
                assert_eq!(zero, 0);
            }
            call!(cq, read_byte_len);
            call!(cq, read_qp_num);
            if input.below(4) == 0 {
                self.scribble(input);
            }
            if input.below(4) == 0 {
                // SAFETY: The queue is valid.
                let result = unsafe { self.program.ops.req_notify_cq.unwrap()(cq.cast(), 0) };
                assert_eq!(result, 0);
            }
            let found = call!(cq, next_poll);
            assert!([0, ENOENT as c_int].contains(&found));
        }
        if rounds >= 240 {
            self.polled.push(plain);
            return;
        }
        call!(cq, end_poll);
    }

    /// Begins to poll, and says whether there is something.
    fn start_poll(&self, cq: *mut ibv_cq_ex, input: &mut Input<'_>) -> bool {
        if input.below(8) == 0 {
            assert_eq!(call!(cq, next_poll), EINVAL as c_int);
            assert_eq!(call!(cq, read_opcode), 0);
            assert_eq!(call!(cq, read_wc_flags), 0);
            call!(cq, end_poll);
            return false;
        }
        let mut attr = ibv_poll_cq_attr {
            comp_mask: u32::from(input.below(8) == 0),
        };
        let found = call!(cq, start_poll, &mut attr);
        if attr.comp_mask != 0 {
            assert_eq!(found, EINVAL as c_int);
        } else if found != 0 {
            assert_eq!(found, ENOENT as c_int);
        }
        found == 0
    }
}
