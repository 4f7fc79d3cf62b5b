// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Random work requests.

use super::{
    fake::*,
    input::{
        buffers,
        sges,
        Input, //
    },
    objects::{
        any,
        Objects, //
    },
    *, //
};

/// The result of posting a list: success, or an error and a work request of the list.
fn posted<T>(error: c_int, bad: *mut T, list: &[T]) {
    if error == 0 {
        assert!(bad.is_null());
    } else {
        assert!(error > 0);
        assert!(list.iter().any(|wr| core::ptr::eq(wr, bad)));
    }
}

impl Objects {
    pub(super) fn send(&self, input: &mut Input<'_>) {
        let Some(qp) = self.free_qp(input) else {
            return;
        };
        let (mut mr, mut mw) = (ibv_mr::default(), ibv_mw::default());
        let mut lists = Vec::new();
        let mut wrs = Vec::new();
        for _ in 0..=input.below(6) {
            let opcode = match input.below(8) {
                0 => input.u32(),
                _ => input.below(18) as u32,
            };
            let flags = match input.below(4) {
                0 => input.u32(),
                _ => input.u8().into(),
            };
            let (mut list, num) = sges(input);
            let mut wr = send(opcode, flags, &mut list);
            wr.num_sge = num;
            wr.wr_id = input.u8().into();
            if input.below(16) == 0 {
                wr.sg_list = null_mut();
            }
            if opcode == ibv_wr_opcode_IBV_WR_BIND_MW {
                wr.__bindgen_anon_2.bind_mw.mw = match input.below(8) {
                    0 => null_mut(),
                    _ => &raw mut mw,
                };
                wr.__bindgen_anon_2.bind_mw.rkey = input.u32();
                wr.__bindgen_anon_2.bind_mw.bind_info = ibv_mw_bind_info {
                    mr: if input.flag() { &mut mr } else { null_mut() },
                    addr: input.u64(),
                    length: input.u8().into(),
                    mw_access_flags: input.u32(),
                };
            }
            lists.push(list);
            wrs.push(wr);
        }
        for at in 1..wrs.len() {
            wrs[at - 1].next = &raw mut wrs[at];
        }
        let result = input.result();
        kernel(|kernel| kernel.result = result);
        let mut bad = null_mut();
        // SAFETY: The queue pair and the list are valid.
        let error = unsafe { self.program.ops.post_send.unwrap()(qp, wrs.as_mut_ptr(), &mut bad) };
        kernel(|kernel| kernel.result = 0);
        posted(error, bad, &wrs);
    }

    /// Builds work requests. All that comes after a mistake, or outside of a batch, has no effect.
    /// A batch may go on later, or never.
    pub(super) fn build(&mut self, input: &mut Input<'_>) {
        let mut extended: Vec<_> = self.qps.clone();
        extended.retain(|qp| !fake::ibv_qp_to_qp_ex(*qp).is_null());
        let Some(qp) = any(&extended, input) else {
            return;
        };
        let open = self.built.iter().position(|built| *built == qp);
        let qp: *mut ibv_qp_ex = qp.cast();
        let started = input.below(8) != 0 || open.is_some();
        match open {
            Some(at) => drop(self.built.remove(at)),
            None if started => call!(qp, wr_start),
            None => (),
        }
        let (mut mr, mut mw) = (ibv_mr::default(), ibv_mw::default());
        for _ in 0..input.below(12) {
            // SAFETY: The queue pair is valid.
            unsafe { (*qp).wr_id = input.u8().into() };
            let flags = match input.below(8) {
                0 => input.u32(),
                _ => input.u8().into(),
            };
            // SAFETY: The queue pair is valid.
            unsafe { (*qp).wr_flags = flags };
            let (rkey, addr) = (input.u8().into(), input.u8().into());
            match input.below(16) {
                0 => call!(qp, wr_send),
                1 => call!(qp, wr_send_inv, rkey),
                2 => call!(qp, wr_send_imm, rkey),
                3 => call!(qp, wr_rdma_write, rkey, addr),
                4 => call!(qp, wr_rdma_write_imm, rkey, addr, input.u32()),
                5 => call!(qp, wr_rdma_read, rkey, addr),
                6 => call!(qp, wr_local_inv, rkey),
                7 => {
                    let info = ibv_mw_bind_info {
                        mr: if input.flag() { &mut mr } else { null_mut() },
                        addr,
                        length: input.u8().into(),
                        mw_access_flags: input.u32(),
                    };
                    let mw = match input.below(8) {
                        0 => null_mut(),
                        _ => &raw mut mw,
                    };
                    call!(qp, wr_bind_mw, mw, rkey, &info);
                }
                8 => call!(qp, wr_atomic_cmp_swp, rkey, addr, input.u64(), input.u64()),
                9 => call!(qp, wr_atomic_fetch_add, rkey, addr, input.u64()),
                10 | 11 => call!(qp, wr_set_sge, rkey, addr, input.u32()),
                12 | 13 => {
                    let (list, _) = sges(input);
                    call!(qp, wr_set_sge_list, list.len(), list.as_ptr());
                }
                14 => {
                    for buffer in buffers(input).iter().take(1) {
                        call!(qp, wr_set_inline_data, buffer.addr, buffer.length);
                    }
                }
                _ => {
                    let list = buffers(input);
                    call!(qp, wr_set_inline_data_list, list.len(), list.as_ptr());
                }
            }
        }
        let rings = kernel(|kernel| kernel.rings);
        let end = input.below(16);
        if started && end == 1 {
            self.built.push(qp.cast());
            return;
        }
        if end % 4 == 0 {
            call!(qp, wr_abort);
            assert_eq!(kernel(|kernel| kernel.rings), rings);
            return;
        }
        let result = input.result();
        kernel(|kernel| kernel.result = result);
        let error = call!(qp, wr_complete);
        kernel(|kernel| kernel.result = 0);
        assert!(error >= 0 && (started || error == EINVAL as c_int));
        assert!(kernel(|kernel| kernel.rings) - rings <= u32::from(started));
    }

    pub(super) fn receive(&self, input: &mut Input<'_>) {
        let mut lists = Vec::new();
        let mut wrs = Vec::new();
        for _ in 0..=input.below(6) {
            let (mut list, num) = sges(input);
            wrs.push(ibv_recv_wr {
                wr_id: input.u8().into(),
                sg_list: list.as_mut_ptr(),
                num_sge: num,
                ..Default::default()
            });
            lists.push(list);
        }
        for at in 1..wrs.len() {
            wrs[at - 1].next = &raw mut wrs[at];
        }
        let mut bad = null_mut();
        let ops = self.program.ops;
        let error = match (any(&self.qps, input), any(&self.srqs, input)) {
            // SAFETY: The queue and the list are valid.
            (_, Some(srq)) if input.flag() => unsafe {
                ops.post_srq_recv.unwrap()(srq, wrs.as_mut_ptr(), &mut bad)
            },
            // SAFETY: The queue pair and the list are valid.
            (Some(qp), _) => unsafe { ops.post_recv.unwrap()(qp, wrs.as_mut_ptr(), &mut bad) },
            _ => return,
        };
        posted(error, bad, &wrs);
    }
}
