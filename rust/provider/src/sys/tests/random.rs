// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Random calls of a program, on a kernel that gives random answers and writes anything into the
//! queues. Whatever it does, the program gets errors at worst: nothing panics, nothing is written
//! outside of the room that the program gave, and nothing is leaked or used after it is freed
//! (`scripts/fuzz` looks for that with a sanitizer).

use super::{
    fake::*,
    input::Input,
    objects::{
        any,
        Objects, //
    },
    program::Program,
    *, //
};
use core::ptr::null;

impl Objects {
    /// A call, or something that the kernel does.
    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(28) {
            0 | 1 => self.create(input),
            2 => self.destroy_any(input),
            3..=5 => self.scribble(input),
            6..=8 => self.poll(input),
            9..=11 => self.poll_ex(input),
            12..=14 => self.send(input),
            15..=18 => self.build(input),
            19 | 20 => self.receive(input),
            21 => {
                if let Some(cq) = any(&self.cqs, input) {
                    let arm = self.program.ops.req_notify_cq.unwrap();
                    // SAFETY: The queue is valid.
                    assert_eq!(unsafe { arm(cq, input.u8().into()) }, 0);
                }
            }
            22 => self.connect(input),
            23 => self.describe(input),
            24 => {
                // What the doorbell writes to, and what is mapped.
                let other = File::options().write(true).open("/dev/full").unwrap();
                let from = if input.flag() { &other } else { &self.device };
                // SAFETY: Both descriptors are open.
                unsafe { dup2(from.as_raw_fd(), self.program.file.as_raw_fd()) };
            }
            25 | 26 => self.resize(input),
            _ => self.bind(input),
        }
    }

    /// Binds a window, or changes a region.
    fn bind(&self, input: &mut Input<'_>) {
        let ops = self.program.ops;
        if let Some(mr) = any(&self.mrs, input) {
            let (result, flags, pd) = (input.result(), input.u8().into(), self.pd(input));
            kernel(|kernel| kernel.result = result);
            // SAFETY: The region and the protection domain are valid.
            let error = unsafe { ops.rereg_mr.unwrap()(mr, flags, pd, null_mut(), 0, 0) };
            assert_eq!(error == 0, result == 0);
            kernel(|kernel| kernel.result = 0);
        }
        let (Some(qp), Some(mw)) = (self.free_qp(input), any(&self.mws, input)) else {
            return;
        };
        let mut mr = ibv_mr::default();
        let mut bind = ibv_mw_bind {
            wr_id: 1,
            send_flags: input.u8().into(),
            bind_info: ibv_mw_bind_info {
                mr: if input.flag() { &mut mr } else { null_mut() },
                addr: input.u64(),
                length: input.u8().into(),
                mw_access_flags: input.u8().into(),
            },
        };
        // SAFETY: All three are valid, and the context has windows.
        let error = unsafe { ops.bind_mw.unwrap()(qp, mw, &mut bind) };
        assert!(error >= 0);
    }

    /// A queue gets another size.
    fn resize(&self, input: &mut Input<'_>) {
        let ops = self.program.ops;
        let (result, resized, put) = (input.result(), input.queue(NEW_KEY), input.number());
        kernel(|kernel| {
            (kernel.resize, kernel.resized, kernel.put) = (result, resized, put);
        });
        let error = match (self.free_cq(input), any(&self.srqs, input)) {
            (_, Some(srq)) if input.flag() => {
                let mut attr = ibv_srq_attr::default();
                // SAFETY: The queue and the attributes are valid.
                unsafe { ops.modify_srq.unwrap()(srq, &mut attr, input.u8().into()) }
            }
            // SAFETY: The queue is valid.
            (Some(cq), _) => unsafe { ops.resize_cq.unwrap()(cq, input.u8().into()) },
            _ => 0,
        };
        assert!(error >= 0);
        kernel(|kernel| kernel.resize = 0);
    }

    /// The program names a peer, and asks whom it has named.
    fn connect(&self, input: &mut Input<'_>) {
        let Some(qp) = any(&self.qps, input) else {
            return;
        };
        let ops = self.program.ops;
        let (result, query_result) = (input.result(), input.result());
        let (addr, mask) = (input.u32().to_be_bytes(), input.below(33));
        kernel(|kernel| {
            kernel.result = result;
            kernel.addr = addr;
            kernel.netmask = (u64::MAX << (32 - mask)).to_be_bytes()[4..]
                .try_into()
                .unwrap();
        });
        let mut attr = ibv_qp_attr {
            ah_attr: ibv_ah_attr {
                dlid: input.u8().into(),
                is_global: input.u8() & 1,
                port_num: input.u8(),
                ..Default::default()
            },
            ..Default::default()
        };
        let mask = if input.flag() {
            ibv_qp_attr_mask_IBV_QP_AV as c_int
        } else {
            input.u32() as c_int
        };
        // SAFETY: The queue pair and the attributes are valid.
        let error = unsafe { ops.modify_qp.unwrap()(qp, &mut attr, mask) };
        assert_eq!(error == 0, result == 0);
        kernel(|kernel| kernel.result = query_result);
        let mut init = ibv_qp_init_attr::default();
        // SAFETY: The queue pair and the room for attributes are valid.
        let error = unsafe { ops.query_qp.unwrap()(qp, &mut attr, mask, &mut init) };
        assert!(error >= 0 && (error == 0) == (query_result == 0));
        kernel(|kernel| kernel.result = 0);
    }

    /// The program asks for attributes of other objects.
    fn describe(&self, input: &mut Input<'_>) {
        let Program { ops, context, .. } = self.program;
        let result = input.result();
        kernel(|kernel| kernel.result = result);
        let mut device = ibv_device_attr_ex::default();
        // SAFETY: The context and the room for attributes are valid.
        let error = unsafe {
            ops.query_device_ex.unwrap()(
                context,
                null(),
                &mut device,
                size_of::<ibv_device_attr_ex>(),
            )
        };
        assert_eq!(error == 0, result == 0);
        assert!(device.orig_attr.fw_ver.contains(&0));
        let mut port = ibv_port_attr::default();
        // SAFETY: The context and the room for attributes are valid.
        let error = unsafe { ops.query_port.unwrap()(context, input.u8(), &mut port) };
        assert_eq!(error == 0, result == 0);
        if let Some(srq) = any(&self.srqs, input) {
            let mut attr = ibv_srq_attr::default();
            // SAFETY: The queue and the room for attributes are valid.
            let error = unsafe { ops.query_srq.unwrap()(srq, &mut attr) };
            assert_eq!(error == 0, result == 0);
            // SAFETY: The queue and the attributes are valid.
            let error = unsafe { ops.modify_srq.unwrap()(srq, &mut attr, 0) };
            assert_eq!(error == 0, result == 0);
        }
        kernel(|kernel| kernel.result = 0);
    }
}

/// Runs the calls that `data` says.
pub(crate) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let features = match input.below(4) {
        0 => input.u32(),
        1 => u32::from(input.u8()) & Siw::WANT,
        _ => Siw::WANT,
    };
    let (result, close_first) = (input.result(), input.flag());
    let kernel_says = Kernel {
        features,
        result,
        comp_mask: [360, 352, 344][input.below(3)],
        ..GOOD
    };
    let opened = match input.below(4) {
        0 => Program::import(kernel_says),
        _ => Program::open(kernel_says),
    };
    let known = features & !Siw::WANT == 0;
    assert_eq!(opened.is_ok(), result == 0 && known);
    let Ok(program) = opened else {
        assert_eq!(kernel(|kernel| kernel.closed), 1);
        return;
    };
    let mut objects = Objects::new(program, features);
    while !input.is_empty() {
        objects.step(&mut input);
    }
    // pyverbs may do that first.
    if close_first {
        objects.program.close();
    }
    objects.finish();
    // Objects that were refused are gone as well.
    let (made, destroyed) = kernel(|kernel| (kernel.made, kernel.destroyed));
    assert_eq!(made, destroyed);
}

#[test]
fn the_inputs_that_are_kept() {
    let text = include_str!("../../../fuzz/corpus/library.txt");
    let mut n = 0;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        // Shown only if it fails.
        println!("{line}");
        let hex = line.split(' ').next().unwrap();
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        run(&(0..hex.len()).step_by(2).map(byte).collect::<Vec<_>>());
        n += 1;
    }
    assert_ne!(n, 0);
}

#[test]
fn nothing_that_the_kernel_says_does_harm() {
    // xorshift64 is random enough.
    for seed in 1..=2000u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let bytes: Vec<u8> = (0..(seed % 500) * 4)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 32) as u8
            })
            .collect();
        println!("seed {seed}");
        run(&bytes);
    }
}
