// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause

//! What a program makes, on a kernel that gives random answers.

use super::{
    fake::*,
    input::Input,
    program::Program,
    *, //
};

/// Objects of the program.
pub(super) struct Objects {
    pub(super) program: Program,
    /// The device, whatever stands for it in the program.
    pub(super) device: File,
    /// What library and driver agreed on.
    features: u32,
    pub(super) cqs: Vec<*mut ibv_cq>,
    /// Those of them that the program polls one by one, at the moment.
    pub(super) polled: Vec<*mut ibv_cq>,
    pub(super) qps: Vec<*mut ibv_qp>,
    /// Those of them for which it builds work requests.
    pub(super) built: Vec<*mut ibv_qp>,
    pub(super) srqs: Vec<*mut ibv_srq>,
    pub(super) mrs: Vec<*mut VerbsMr>,
    imported_mrs: Vec<*mut ibv_mr>,
    pub(super) mws: Vec<*mut ibv_mw>,
    /// Each may be of one before it.
    parents: Vec<*mut ibv_pd>,
    pds: Vec<*mut ibv_pd>,
    imported_pds: Vec<*mut ibv_pd>,
    tds: Vec<*mut ibv_td>,
}

/// The number of kinds that [`Objects::destroy`] knows. None of them is in a later one.
const KINDS: usize = 10;

/// Makes an object, and keeps it.
fn keep<T>(list: &mut Vec<*mut T>, make: impl FnOnce() -> *mut T) -> Option<*mut T> {
    let object = made(make).ok()?;
    list.push(object);
    Some(object)
}

/// An object of the list.
pub(super) fn any<T>(list: &[*mut T], input: &mut Input<'_>) -> Option<*mut T> {
    let at = input.below(list.len().max(1));
    list.get(at).copied()
}

/// Destroys an object of the list, and says whether it is gone. If the kernel refuses, it stays
/// what it is, and so does a domain that is in use.
fn end<T>(
    list: &mut Vec<*mut T>,
    from_end: usize,
    refused: c_int,
    destroy: unsafe extern "C" fn(*mut T) -> c_int,
    may_be_used: bool,
) -> bool {
    if list.is_empty() {
        return false;
    }
    let at = list.len() - 1 - from_end % list.len();
    kernel(|kernel| kernel.destroy = refused);
    // SAFETY: The object is valid, and is not used any more if this succeeds.
    let result = unsafe { destroy(list[at]) };
    kernel(|kernel| kernel.destroy = 0);
    if result == 0 {
        list.remove(at);
    } else {
        assert!(result == refused || (result == BUSY && may_be_used));
    }
    result == 0
}

/// Forgets an object that is imported.
fn forget<T>(
    list: &mut Vec<*mut T>,
    from_end: usize,
    unimport: unsafe extern "C" fn(*mut T),
) -> bool {
    if list.is_empty() {
        return false;
    }
    let object = list.remove(list.len() - 1 - from_end % list.len());
    // SAFETY: The object is valid, and is not used any more.
    unsafe { unimport(object) };
    true
}

impl Objects {
    pub(super) fn new(program: Program, features: u32) -> Self {
        Self {
            device: program.file.try_clone().unwrap(),
            program,
            features,
            cqs: Vec::new(),
            polled: Vec::new(),
            qps: Vec::new(),
            built: Vec::new(),
            srqs: Vec::new(),
            mrs: Vec::new(),
            imported_mrs: Vec::new(),
            mws: Vec::new(),
            parents: Vec::new(),
            pds: Vec::new(),
            imported_pds: Vec::new(),
            tds: Vec::new(),
        }
    }

    /// A protection domain.
    pub(super) fn pd(&self, input: &mut Input<'_>) -> *mut ibv_pd {
        let list = [&self.parents, &self.pds, &self.imported_pds][input.below(3)];
        any(list, input).unwrap_or(self.program.pd)
    }

    /// A completion queue that can be polled: it would wait for the end of another poll.
    pub(super) fn free_cq(&self, input: &mut Input<'_>) -> Option<*mut ibv_cq> {
        any(&self.cqs, input).filter(|cq| !self.polled.contains(cq))
    }

    /// A queue pair that can be posted to: it would wait for the end of a batch.
    pub(super) fn free_qp(&self, input: &mut Input<'_>) -> Option<*mut ibv_qp> {
        any(&self.qps, input).filter(|qp| !self.built.contains(qp))
    }

    pub(super) fn create(&mut self, input: &mut Input<'_>) {
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
        let (ops, context) = (self.program.ops, self.program.context);
        match input.below(16) {
            0 => {
                // SAFETY: The context is valid.
                keep(&mut self.cqs, || unsafe {
                    ops.create_cq.unwrap()(context, 4, null_mut(), 0)
                });
            }
            1..=3 => self.create_cq_ex(input),
            4 | 5 => self.create_qp(input),
            6..=8 => self.create_qp_ex(input),
            9 | 10 => {
                let pd = self.pd(input);
                let mut attr = ibv_srq_init_attr::default();
                attr.attr.max_sge = input.number();
                // SAFETY: The protection domain and the attributes are valid.
                keep(&mut self.srqs, || unsafe {
                    ops.create_srq.unwrap()(pd, &mut attr)
                });
            }
            11 => {
                // SAFETY: The context is valid.
                keep(&mut self.pds, || unsafe { ops.alloc_pd.unwrap()(context) });
            }
            12 => self.create_domain(input),
            13 => self.import(input),
            14 => {
                let pd = self.pd(input);
                // SAFETY: The protection domain is valid.
                let reg = || unsafe { ops.reg_dmabuf_mr.unwrap()(pd, 0, 0, 0, 0, 0) };
                keep(&mut self.mrs, || reg().cast());
            }
            _ => {
                let pd = self.pd(input);
                // SAFETY: The protection domain is valid.
                let reg = || unsafe { ops.reg_mr.unwrap()(pd, null_mut(), 0, 0, 0) };
                keep(&mut self.mrs, || reg().cast());
                if let Some(alloc) = ops.alloc_mw {
                    // SAFETY: The protection domain is valid.
                    keep(&mut self.mws, || unsafe { alloc(pd, input.u8().into()) });
                }
            }
        }
        kernel(|kernel| kernel.result = 0);
    }

    fn create_cq_ex(&mut self, input: &mut Input<'_>) {
        let mut attr = ibv_cq_init_attr_ex {
            cqe: input.u8().into(),
            wc_flags: u64::from(input.u8()) & u64::from(IBV_WC_STANDARD_FLAGS),
            ..Default::default()
        };
        match input.below(8) {
            0 => {
                attr.cqe = input.u32();
                attr.comp_vector = input.u32();
            }
            1 => attr.wc_flags = input.u64(),
            2 => attr.comp_mask = input.u32(),
            3 => attr.comp_mask = input.u8().into(),
            _ => (),
        }
        attr.flags = input.below(4) as u32;
        attr.parent_domain = match input.below(4) {
            0 => null_mut(),
            1 => self.pd(input),
            _ => any(&self.parents, input).unwrap_or(null_mut()),
        };
        if input.flag() {
            attr.comp_mask |= ibv_cq_init_attr_mask_IBV_CQ_INIT_ATTR_MASK_PD;
        }
        if let Ok(cq) = self.program.cq_ex(attr) {
            assert_eq!(attr.wc_flags & !u64::from(IBV_WC_STANDARD_FLAGS), 0);
            self.cqs.push(cq.cast());
        }
    }

    fn create_qp(&mut self, input: &mut Input<'_>) {
        let pd = self.pd(input);
        let mut attr = ibv_qp_init_attr {
            srq: any(&self.srqs, input).unwrap_or(null_mut()),
            sq_sig_all: input.u8().into(),
            ..Default::default()
        };
        // The kernel's answer as well.
        attr.cap.max_send_sge = input.number();
        attr.cap.max_recv_sge = input.number();
        // SAFETY: The protection domain and the attributes are valid.
        let create = || unsafe { self.program.ops.create_qp.unwrap()(pd, &mut attr) };
        if let Some(qp) = keep(&mut self.qps, create) {
            assert!(fake::ibv_qp_to_qp_ex(qp).is_null());
        }
    }

    fn create_qp_ex(&mut self, input: &mut Input<'_>) {
        let send_ops = ibv_qp_init_attr_mask_IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        let known = Siw::send_ops(self.features);
        let mut attr = ibv_qp_init_attr_ex {
            srq: any(&self.srqs, input).unwrap_or(null_mut()),
            sq_sig_all: input.u8().into(),
            comp_mask: ibv_qp_init_attr_mask_IBV_QP_INIT_ATTR_PD | send_ops,
            pd: self.pd(input),
            send_ops_flags: known,
            ..Default::default()
        };
        match input.below(8) {
            0 => attr.comp_mask = input.u32(),
            1 => attr.comp_mask = input.u8().into(),
            2 => attr.send_ops_flags = input.u64(),
            3 => attr.send_ops_flags = input.u32().into(),
            4 => attr.create_flags = input.u8().into(),
            5 => attr.pd = null_mut(),
            _ => (),
        }
        attr.cap.max_send_sge = input.number();
        attr.cap.max_recv_sge = input.number();
        let Program { ops, context, .. } = self.program;
        // SAFETY: The context and the attributes are valid.
        let create = || unsafe { ops.create_qp_ex.unwrap()(context, &mut attr) };
        if let Some(qp) = keep(&mut self.qps, create) {
            let extended = attr.comp_mask & send_ops != 0;
            assert_eq!(!fake::ibv_qp_to_qp_ex(qp).is_null(), extended);
            assert!(!extended || attr.send_ops_flags & !known == 0);
        }
    }

    /// A thread domain, or a parent domain.
    fn create_domain(&mut self, input: &mut Input<'_>) {
        let Program { ops, context, .. } = self.program;
        let comp_mask = match input.below(4) {
            0 => input.u8().into(),
            _ => 0,
        };
        if input.flag() {
            let mut attr = ibv_td_init_attr { comp_mask };
            // SAFETY: The context and the attributes are valid.
            keep(&mut self.tds, || unsafe {
                ops.alloc_td.unwrap()(context, &mut attr)
            });
        } else {
            let mut attr = ibv_parent_domain_init_attr {
                pd: match input.below(8) {
                    0 => null_mut(),
                    _ => self.pd(input),
                },
                td: any(&self.tds, input).unwrap_or(null_mut()),
                comp_mask,
                ..Default::default()
            };
            // SAFETY: The context and the attributes are valid.
            keep(&mut self.parents, || unsafe {
                ops.alloc_parent_domain.unwrap()(context, &mut attr)
            });
        }
    }

    fn import(&mut self, input: &mut Input<'_>) {
        let Program { ops, context, .. } = self.program;
        let handle = input.u32();
        if input.flag() {
            // SAFETY: The context is valid.
            keep(&mut self.imported_pds, || unsafe {
                ops.import_pd.unwrap()(context, handle)
            });
        } else {
            let pd = self.pd(input);
            // SAFETY: The protection domain is valid.
            keep(&mut self.imported_mrs, || unsafe {
                ops.import_mr.unwrap()(pd, handle)
            });
        }
    }

    /// Whether nothing is left that may be in a protection domain.
    fn domains_are_empty(&self) -> bool {
        self.cqs.is_empty()
            && self.qps.is_empty()
            && self.srqs.is_empty()
            && self.mrs.is_empty()
            && self.imported_mrs.is_empty()
            && self.mws.is_empty()
            && self.parents.is_empty()
    }

    /// Destroys an object of a kind, counted from the last one, and says whether it is gone.
    pub(super) fn destroy(&mut self, kind: usize, from_end: usize, refused: c_int) -> bool {
        let gone = self.destroy_one(kind, from_end, refused);
        // What the program was about to do with it is forgotten. The next one may be at its
        // address.
        self.polled.retain(|cq| self.cqs.contains(cq));
        self.built.retain(|qp| self.qps.contains(qp));
        gone
    }

    fn destroy_one(&mut self, kind: usize, from_end: usize, refused: c_int) -> bool {
        let ops = self.program.ops;
        match kind {
            0 => end(
                &mut self.cqs,
                from_end,
                refused,
                ops.destroy_cq.unwrap(),
                false,
            ),
            1 => end(
                &mut self.qps,
                from_end,
                refused,
                ops.destroy_qp.unwrap(),
                false,
            ),
            2 => end(
                &mut self.srqs,
                from_end,
                refused,
                ops.destroy_srq.unwrap(),
                false,
            ),
            3 => end(
                &mut self.mrs,
                from_end,
                refused,
                ops.dereg_mr.unwrap(),
                false,
            ),
            4 => ops
                .dealloc_mw
                .is_some_and(|destroy| end(&mut self.mws, from_end, refused, destroy, false)),
            5 => forget(&mut self.imported_mrs, from_end, ops.unimport_mr.unwrap()),
            6 => end(
                &mut self.parents,
                from_end,
                refused,
                ops.dealloc_pd.unwrap(),
                true,
            ),
            7 => end(
                &mut self.pds,
                from_end,
                refused,
                ops.dealloc_pd.unwrap(),
                true,
            ),
            // The memory of one that is in use would never be freed.
            8 if self.domains_are_empty() => {
                forget(&mut self.imported_pds, from_end, ops.unimport_pd.unwrap())
            }
            8 => false,
            _ => end(
                &mut self.tds,
                from_end,
                refused,
                ops.dealloc_td.unwrap(),
                true,
            ),
        }
    }

    /// Destroys any object. The kernel may refuse.
    pub(super) fn destroy_any(&mut self, input: &mut Input<'_>) {
        let refused = if input.below(4) == 0 { BUSY } else { 0 };
        self.destroy(input.below(KINDS), input.u8().into(), refused);
    }

    /// Destroys all, each before those it is in. Nobody refuses.
    pub(super) fn finish(mut self) {
        for kind in 0..KINDS {
            while self.destroy(kind, 0, 0) {}
        }
        let Self { program, .. } = &self;
        // SAFETY: The domain is valid, and is not used any more.
        assert_eq!(unsafe { program.ops.dealloc_pd.unwrap()(program.pd) }, 0);
        let left = [&self.parents, &self.pds, &self.imported_pds];
        assert!(left.iter().all(|list| list.is_empty()) && self.tds.is_empty());
    }
}
