// SPDX-License-Identifier: GPL-2.0

//! Shared receive queues.

use kernel::prelude::*;

use crate::{
    callback::{
        missing,
        to_errno,
        Int, //
    },
    device::Driver,
    object::{
        self,
        impl_base,
        Object, //
    },
    pd::Pd,
    ucontext::Customer,
    udata::Udata,
    wr::RecvWrs, //
};
use base::bindings::{
    self,
    ib_recv_wr,
    ib_srq,
    ib_srq_attr,
    ib_srq_init_attr,
    ib_udata, //
};

/// A shared receive queue, with the provider's payload [`Driver::Srq`].
pub type Srq<D> = Object<D, ib_srq>;
/// A shared receive queue under construction.
pub type New<'a, D> = object::New<'a, D, ib_srq>;
/// A shared receive queue that is complete, as [`Operations::create`] returns it.
pub type Live<'a, D> = object::Live<'a, D, ib_srq>;

impl_base!(ib_srq => Srq);

/// The operations of shared receive queues, which their payload implements. `()` has none of them.
///
/// # Examples
///
/// ```ignore
/// #[vtable]
/// impl srq::Operations<MyDriver> for Srq {
///     fn query(srq: &Srq<MyDriver>) -> Result<srq::Attr> {
///         Ok(srq::Attr {
///             max_wr: srq.size,
///             max_sge: srq.max_sge,
///             limit: srq.queue.lock().limit,
///         })
///     }
///
///     // ...
/// }
/// ```
#[vtable]
#[allow(unused_variables, reason = "what is missing uses nothing")]
pub trait Operations<D: Driver>: Sized + Send + Sync {
    /// A consumer wants a shared receive queue. `udata` is there if the consumer is a program.
    /// Returns the actual sizes as well, for the consumer. May sleep.
    fn create<'a>(
        new: New<'a, D>,
        attr: &InitAttr,
        udata: Option<&mut Udata<'_>>,
    ) -> Result<(Live<'a, D>, Attr)> {
        missing()
    }

    /// Changes what `mask` names, or nothing. `program` is there if the consumer is a program.
    /// Calls for one SRQ may overlap. May sleep.
    fn modify(
        srq: &Srq<D>,
        attr: &Attr,
        mask: Mask,
        program: Option<(Customer<'_, D>, &mut Udata<'_>)>,
    ) -> Result {
        missing()
    }

    /// The attributes of a shared receive queue. May sleep.
    fn query(srq: &Srq<D>) -> Result<Attr> {
        missing()
    }

    /// The shared receive queue is being destroyed. No QP uses it any more. May sleep.
    fn destroy(srq: &Srq<D>) {}

    /// Posts to a shared receive queue. If it fails, the consumer gets the request that
    /// [`RecvWrs::next`] returned last; those before it are posted. Any context.
    ///
    /// Only for the queues of kernel consumers: programs post to their mapped queues.
    fn post_recv(srq: &Srq<D>, wrs: &mut RecvWrs<'_>) -> Result {
        missing()
    }
}

#[vtable]
impl<D: Driver> Operations<D> for () {}

/// The requested attributes of an SRQ (`struct ib_srq_init_attr`).
#[derive(Clone, Copy)]
pub struct InitAttr {
    /// Whether it is of the basic type, the only one of iWARP.
    pub basic: bool,
    /// The requested sizes and the limit.
    pub attr: Attr,
}

/// The attributes of an SRQ (`struct ib_srq_attr`).
#[derive(Clone, Copy, Default)]
pub struct Attr {
    /// The number of work requests that it has room for.
    pub max_wr: u32,
    /// The number of elements that a work request may have.
    pub max_sge: u32,
    /// Fewer requests than this raise [`Event::LimitReached`], once; 0: none do.
    pub limit: u32,
}

impl Attr {
    fn new(raw: &ib_srq_attr) -> Self {
        Self {
            max_wr: raw.max_wr,
            max_sge: raw.max_sge,
            limit: raw.srq_limit,
        }
    }

    fn fill(&self, out: &mut ib_srq_attr) {
        out.max_wr = self.max_wr;
        out.max_sge = self.max_sge;
        out.srq_limit = self.limit;
    }
}

/// The requested changes to an SRQ (`enum ib_srq_attr_mask`).
#[derive(Clone, Copy)]
pub struct Mask {
    /// Change [`Attr::max_wr`].
    pub max_wr: bool,
    /// Change [`Attr::limit`].
    pub limit: bool,
}

/// An asynchronous event of an SRQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The queue runs low (`IB_EVENT_SRQ_LIMIT_REACHED`).
    LimitReached,
}

impl<'a, D: Driver> New<'a, D> {
    /// The protection domain of the SRQ.
    pub fn pd(&self) -> &'a Pd<D> {
        // SAFETY: The core initialised the structure.
        let pd = unsafe { (*self.as_raw()).pd };
        // SAFETY: The core set it and counts its users.
        unsafe { Pd::from_raw(pd) }
    }
}

impl<D: Driver> Srq<D> {
    /// Reports an event to the consumer. Any context; no lock of the provider may be held.
    pub fn event(&self, event: Event) {
        if self.is_destroying() {
            return;
        }
        let srq = self.as_raw();
        let mut ev: bindings::ib_event = pin_init::zeroed();
        ev.event = match event {
            Event::LimitReached => bindings::ib_event_type_IB_EVENT_SRQ_LIMIT_REACHED,
        };
        // SAFETY: The structure is initialised.
        ev.device = unsafe { (*srq).device };
        ev.element.srq = srq;
        // SAFETY: As above; the core sets the handler before creation.
        if let Some(handler) = unsafe { (*srq).event_handler } {
            // SAFETY: The SRQ is live. Its context was set along with the handler.
            let context = unsafe { (*srq).srq_context };
            // SAFETY: The SRQ exists, and the event describes it.
            unsafe { handler(&mut ev, context) };
        }
    }
}

/// # Safety
///
/// As `callback` says.
pub(super) unsafe extern "C" fn create_srq<D: Driver>(
    srq: *mut ib_srq,
    attr: *mut ib_srq_init_attr,
    udata: *mut ib_udata,
) -> Int {
    let mut actual = None;
    // SAFETY: By *valid*: the core does not change the attributes during the call.
    let raw = unsafe { &*attr };
    let wanted = InitAttr {
        basic: raw.srq_type == bindings::ib_srq_type_IB_SRQT_BASIC,
        attr: Attr::new(&raw.attr),
    };
    // SAFETY: By *verb*, and by *live* for the context.
    let customer = unsafe { Customer::from_raw(udata) };
    // SAFETY: The core allocated `size_ib_srq` bytes for this call, and uses them only when it is
    // over. `udata` is valid by *verb*, and names the customer.
    let result = unsafe {
        Object::create(srq, udata, customer, |new, udata| {
            let (live, sizes) = <D::Srq>::create(new, &wanted, udata)?;
            actual = Some(sizes);
            Ok(live)
        })
    };
    if let (Ok(()), Some(sizes)) = (&result, actual) {
        // SAFETY: By *valid*: the core reads the sizes after the call, and nothing else uses them.
        sizes.fill(unsafe { &mut (*attr).attr });
    }
    to_errno(result)
}

/// # Safety
///
/// As `callback` says.
pub(super) unsafe extern "C" fn modify_srq<D: Driver>(
    srq: *mut ib_srq,
    attr: *mut ib_srq_attr,
    mask: bindings::ib_srq_attr_mask,
    udata: *mut ib_udata,
) -> Int {
    // SAFETY: By the requirements of this function.
    let srq = unsafe { Srq::<D>::from_raw(srq) };
    // SAFETY: By *verb*, and by *live* for the context.
    let customer = unsafe { Customer::from_raw(udata) };
    // SAFETY: By *verb*: null, or of the verb that this call executes.
    let mut udata = unsafe { Udata::from_raw(udata) };
    // SAFETY: By *valid*: the core does not change the attributes during the call.
    let attr = Attr::new(unsafe { &*attr });
    let mask = Mask {
        max_wr: mask & bindings::ib_srq_attr_mask_IB_SRQ_MAX_WR != 0,
        limit: mask & bindings::ib_srq_attr_mask_IB_SRQ_LIMIT != 0,
    };
    let program = customer.zip(udata.as_mut());
    to_errno(<D::Srq>::modify(srq, &attr, mask, program))
}

/// # Safety
///
/// As `callback` says.
pub(super) unsafe extern "C" fn query_srq<D: Driver>(
    srq: *mut ib_srq,
    attr: *mut ib_srq_attr,
) -> Int {
    // SAFETY: By the requirements of this function.
    let srq = unsafe { Srq::<D>::from_raw(srq) };
    // SAFETY: By *valid*: only this call writes to `attr`.
    let out = unsafe { &mut *attr };
    to_errno(<D::Srq>::query(srq).map(|attr| attr.fill(out)))
}

/// # Safety
///
/// As `callback` says.
pub(super) unsafe extern "C" fn destroy_srq<D: Driver>(
    srq: *mut ib_srq,
    _udata: *mut ib_udata,
) -> Int {
    // SAFETY: By the requirements of this function.
    unsafe { Object::destroy(srq, <D::Srq>::destroy) };
    0
}

/// # Safety
///
/// As `callback` says.
pub(super) unsafe extern "C" fn post_srq_recv<D: Driver>(
    srq: *mut ib_srq,
    wr: *const ib_recv_wr,
    bad: *mut *const ib_recv_wr,
) -> Int {
    // SAFETY: By the requirements of this function.
    let srq = unsafe { Srq::<D>::from_raw(srq) };
    // SAFETY: By *valid*: the list ends in null, and stays until the call returns. Its addresses
    // are the kernel's: `Device::configure` enables no command that would bring a program's.
    let mut wrs = unsafe { RecvWrs::from_raw(wr) };
    to_errno(<D::Srq>::post_recv(srq, &mut wrs).inspect_err(|_| {
        // SAFETY: By *valid*: the core gives each post a place for the request that failed.
        unsafe { *bad = wrs.bad() };
    }))
}
