// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! Random calls of a program, on a kernel that gives random answers and writes anything into the
//! queues. Whatever it does, the program gets errors at worst: nothing panics, nothing is written
//! outside of the room that the program gave, and nothing is leaked or used after it is freed
//! (`scripts/fuzz` looks for that with a sanitizer).

use super::{
    fake::*,
    input::{
        sges,
        Input, //
    },
    program::Program,
    *, //
};
use core::ptr::null;

/// Objects of the program.
struct Objects {
    program: Program,
    /// The device, whatever stands for it in the program.
    device: File,
    cqs: Vec<*mut ibv_cq>,
    qps: Vec<*mut ibv_qp>,
    srqs: Vec<*mut ibv_srq>,
    pds: Vec<*mut ibv_pd>,
    mrs: Vec<*mut VerbsMr>,
    mws: Vec<*mut ibv_mw>,
}

/// Keeps an object, if it was made. If not, `errno` says why.
fn keep<T>(list: &mut Vec<*mut T>, make: impl FnOnce() -> *mut T) {
    let object = make();
    if object.is_null() {
        assert!(errno().number() != 0);
    } else {
        list.push(object);
    }
}

/// An object of the list.
fn any<T>(list: &[*mut T], input: &mut Input<'_>) -> Option<*mut T> {
    let at = input.below(list.len().max(1));
    list.get(at).copied()
}

/// Destroys an object of the list. If the kernel refuses, it stays what it is. A domain may be in
/// use.
fn end<T>(
    list: &mut Vec<*mut T>,
    input: &mut Input<'_>,
    destroy: unsafe extern "C" fn(*mut T) -> c_int,
) {
    if list.is_empty() {
        return;
    }
    let refused = if input.below(4) == 0 { BUSY } else { 0 };
    kernel(|kernel| kernel.destroy = refused);
    let at = input.below(list.len());
    // SAFETY: The object is valid, and is not used any more if this succeeds.
    let result = unsafe { destroy(list[at]) };
    if result == 0 {
        list.remove(at);
    }
    let is_domain = size_of::<T>() == size_of::<ibv_pd>();
    assert!(result == refused || (result == BUSY && is_domain));
    kernel(|kernel| kernel.destroy = 0);
}

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
    fn pd(&self, input: &mut Input<'_>) -> *mut ibv_pd {
        any(&self.pds, input).unwrap_or(self.program.pd)
    }

    /// A call, or something that the kernel does.
    fn step(&mut self, input: &mut Input<'_>) {
        let ops = self.program.ops;
        match input.below(20) {
            0 => self.create(input),
            1 => self.destroy(input),
            2..=4 => self.scribble(input),
            5..=8 => self.poll(input),
            9..=12 => self.send(input),
            13 | 14 => self.receive(input),
            15 => {
                if let Some(cq) = any(&self.cqs, input) {
                    // SAFETY: The queue is valid.
                    let result = unsafe { ops.req_notify_cq.unwrap()(cq, input.u8().into()) };
                    assert_eq!(result, 0);
                }
            }
            16 => self.connect(input),
            17 => self.describe(input),
            18 => {
                // What the doorbell writes to, and what is mapped.
                let other = File::options().write(true).open("/dev/full").unwrap();
                let from = if input.flag() { &other } else { &self.device };
                // SAFETY: Both descriptors are open.
                unsafe { dup2(from.as_raw_fd(), self.program.file.as_raw_fd()) };
            }
            _ => {
                let (Some(qp), Some(mw)) = (any(&self.qps, input), any(&self.mws, input)) else {
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
        }
    }

    fn create(&mut self, input: &mut Input<'_>) {
        let pd = self.pd(input);
        let Self { program, .. } = self;
        let (ops, context) = (program.ops, program.context);
        let result = input.result();
        let (sq, rq, cq) = (
            input.queue(SQ_KEY),
            input.queue(RQ_KEY),
            input.queue(CQ_KEY),
        );
        kernel(|kernel| {
            kernel.result = result;
            (kernel.sq, kernel.rq, kernel.cq) = (sq, rq, cq);
        });
        match input.below(8) {
            // SAFETY: The context is valid.
            0 | 1 => keep(&mut self.cqs, || unsafe {
                ops.create_cq.unwrap()(context, 4, null_mut(), 0)
            }),
            2..=4 => {
                let mut attr = ibv_qp_init_attr {
                    srq: any(&self.srqs, input).unwrap_or(null_mut()),
                    sq_sig_all: input.u8().into(),
                    ..Default::default()
                };
                // The kernel's answer as well.
                attr.cap.max_send_sge = input.number();
                attr.cap.max_recv_sge = input.number();
                // SAFETY: The protection domain and the attributes are valid.
                keep(&mut self.qps, || unsafe {
                    ops.create_qp.unwrap()(pd, &mut attr)
                });
            }
            5 => {
                let mut attr = ibv_srq_init_attr::default();
                attr.attr.max_sge = input.number();
                // SAFETY: The protection domain and the attributes are valid.
                keep(&mut self.srqs, || unsafe {
                    ops.create_srq.unwrap()(pd, &mut attr)
                });
            }
            // SAFETY: The context is valid.
            6 => keep(&mut self.pds, || unsafe { ops.alloc_pd.unwrap()(context) }),
            _ => {
                // SAFETY: The protection domain is valid.
                let mr = unsafe { ops.reg_mr.unwrap()(pd, null_mut(), 0, 0, 0) };
                keep(&mut self.mrs, || mr.cast());
                if let Some(alloc) = ops.alloc_mw {
                    let kind = input.u8().into();
                    // SAFETY: The protection domain is valid.
                    keep(&mut self.mws, || unsafe { alloc(pd, kind) });
                }
            }
        }
        kernel(|kernel| kernel.result = 0);
    }

    fn destroy(&mut self, input: &mut Input<'_>) {
        let ops = self.program.ops;
        match input.below(6) {
            0 => end(&mut self.cqs, input, ops.destroy_cq.unwrap()),
            1 => end(&mut self.qps, input, ops.destroy_qp.unwrap()),
            2 => end(&mut self.srqs, input, ops.destroy_srq.unwrap()),
            3 => end(&mut self.pds, input, ops.dealloc_pd.unwrap()),
            4 => end(&mut self.mrs, input, ops.dereg_mr.unwrap()),
            _ => {
                if let Some(destroy) = ops.dealloc_mw {
                    end(&mut self.mws, input, destroy);
                }
            }
        }
    }

    /// The kernel writes to the queues that most have mapped.
    fn scribble(&self, input: &mut Input<'_>) {
        let key = [SQ_KEY, RQ_KEY, CQ_KEY][input.below(3)];
        let words = Shared::map(&Offer::of(&self.device, key, 1), 512).unwrap();
        for _ in 0..=input.below(4) {
            // Mostly the head of an element in one of the queues.
            let at = match input.below(4) {
                0 => input.below(256),
                at => input.below(4) * [15, 14, 4][at - 1] + 1,
            };
            let word = match input.below(3) {
                0 => 0,
                1 => 1 | (u64::from(input.u8()) << 8),
                _ => input.u64(),
            };
            words[at].store(word, Relaxed);
        }
    }

    fn poll(&self, input: &mut Input<'_>) {
        let Some(cq) = any(&self.cqs, input) else {
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
            assert!(wc.status <= ibv_wc_status_IBV_WC_GENERAL_ERR);
            let known = matches!(
                wc.opcode,
                0..=2 | ibv_wc_opcode_IBV_WC_BIND_MW..=ibv_wc_opcode_IBV_WC_LOCAL_INV
            );
            assert!(known || wc.opcode == ibv_wc_opcode_IBV_WC_RECV);
        }
    }

    fn send(&self, input: &mut Input<'_>) {
        let Some(qp) = any(&self.qps, input) else {
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
                wr.__bindgen_anon_2.bind_mw.mw = &mut mw;
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
        let mut bad = null_mut();
        // SAFETY: The queue pair and the list are valid.
        let error = unsafe { self.program.ops.post_send.unwrap()(qp, wrs.as_mut_ptr(), &mut bad) };
        posted(error, bad, &wrs);
    }

    fn receive(&self, input: &mut Input<'_>) {
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

    fn is_empty(&self) -> bool {
        self.cqs.is_empty()
            && self.qps.is_empty()
            && self.srqs.is_empty()
            && self.pds.is_empty()
            && self.mrs.is_empty()
            && self.mws.is_empty()
    }
}

/// Runs the calls that `data` says.
pub(crate) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let features = match input.below(4) {
        0 => input.u32(),
        1 => 0,
        _ => feature::WINDOWS,
    };
    let (result, close_first) = (input.result(), input.flag());
    let opened = Program::open(Kernel {
        features,
        result,
        ..GOOD
    });
    let known = features & !Siw::WANT == 0;
    assert_eq!(opened.is_some(), result == 0 && known);
    let Some(program) = opened else {
        assert_eq!(kernel(|kernel| kernel.closed), 1);
        return;
    };
    kernel(|kernel| kernel.result = 0);
    let mut objects = Objects {
        device: program.file.try_clone().unwrap(),
        program,
        cqs: Vec::new(),
        qps: Vec::new(),
        srqs: Vec::new(),
        pds: Vec::new(),
        mrs: Vec::new(),
        mws: Vec::new(),
    };
    while !input.is_empty() {
        objects.step(&mut input);
    }
    // pyverbs may do that first.
    if close_first {
        objects.program.close();
    }
    while !objects.is_empty() {
        for kind in 0..6 {
            // The first of its kind, and the kernel does not refuse.
            objects.destroy(&mut Input::new(&[kind, 1]));
        }
    }
    let Program { ops, pd, .. } = objects.program;
    // SAFETY: The domain is valid, and is not used any more.
    assert_eq!(unsafe { ops.dealloc_pd.unwrap()(pd) }, 0);
    // Objects that were refused are gone as well.
    let (made, destroyed) = kernel(|kernel| (kernel.made, kernel.destroyed));
    assert_eq!(made, destroyed);
}

#[test]
fn the_inputs_that_are_kept() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/library");
    let mut files: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        // Shown only if it fails.
        println!("{}", file.display());
        run(&std::fs::read(file).unwrap());
    }
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
