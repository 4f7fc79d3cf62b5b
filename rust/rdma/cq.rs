// SPDX-License-Identifier: GPL-2.0

//! Completion queues.

use core::ptr::null_mut;

use kernel::{
    ffi,
    prelude::*, //
};

use crate::{
    callback::{
        count,
        missing,
        to_errno,
        Int, //
    },
    details::Details,
    device::Driver,
    object::{
        self,
        impl_base,
        Object, //
    },
    ucontext::Customer,
    udata::Udata,
    wc::WcOut, //
};
use base::bindings::{
    self,
    ib_cq,
    ib_cq_init_attr,
    ib_udata,
    ib_wc,
    sk_buff,
    uverbs_attr_bundle, //
};

/// A completion queue, with the provider's payload [`Driver::Cq`].
pub type Cq<D> = Object<D, ib_cq>;
/// A completion queue under construction.
pub type New<'a, D> = object::New<'a, D, ib_cq>;
/// A completion queue that is complete, as [`Operations::create`] returns it.
pub type Live<'a, D> = object::Live<'a, D, ib_cq>;

impl_base!(ib_cq => Cq);

/// The operations of completion queues, which their payload implements. `()` has none of them.
///
/// # Examples
///
/// ```ignore
/// #[vtable]
/// impl cq::Operations<MyDriver> for Cq {
///     fn create<'a>(
///         new: cq::New<'a, MyDriver>,
///         attr: &cq::InitAttr,
///         udata: Option<&mut Udata<'_>>,
///     ) -> Result<cq::Live<'a, MyDriver>> {
///         if attr.flags != 0 || udata.is_some() {
///             return Err(errno::eopnotsupp());
///         }
///         let entries = Entries::new(attr.cqe)?;
///         new.set_cqe(attr.cqe);
///         new.init(pin_init!(Self { entries <- new_spinlock!(entries) }))
///     }
///
///     fn poll(cq: &Cq<MyDriver>, out: &mut WcOut<'_, MyDriver>) -> Result {
///         let mut entries = cq.entries.lock();
///         while !out.is_full() {
///             let Some(wc) = entries.pop() else { break };
///             out.push(wc);
///         }
///         Ok(())
///     }
///
///     // ...
/// }
/// ```
#[vtable]
#[allow(unused_variables, reason = "what is missing uses nothing")]
pub trait Operations<D: Driver>: Sized + Send + Sync {
    /// A consumer wants a completion queue. `udata` is there if the consumer is a program. May
    /// sleep.
    fn create<'a>(
        new: New<'a, D>,
        attr: &InitAttr,
        udata: Option<&mut Udata<'_>>,
    ) -> Result<Live<'a, D>> {
        missing()
    }

    /// The completion queue is being destroyed. No QP completes into it any more. May sleep.
    fn destroy(cq: &Cq<D>) {}

    /// Moves completions to `out`, as many as it has room for. If it fails, the consumer gets those
    /// that were moved before, and the error if there are none. Any context.
    fn poll(cq: &Cq<D>, out: &mut WcOut<'_, D>) -> Result {
        missing()
    }

    /// Asks for a notification. Returns how many completions wait, if that is asked for. Any
    /// context.
    fn req_notify(cq: &Cq<D>, notify: Notify) -> Result<u32> {
        missing()
    }

    /// A program wants at least `cqe` entries, and not 0; no limit has been checked. Returns how
    /// many there are now. After an error the CQ is as it was. Calls for one CQ may overlap. May
    /// sleep.
    fn resize(cq: &Cq<D>, cqe: u32, user: Customer<'_, D>, udata: &mut Udata<'_>) -> Result<u32> {
        missing()
    }

    /// Tells about a CQ what the core does not know. May sleep.
    fn describe(cq: &Cq<D>, out: &mut Details<'_>) -> Result {
        missing()
    }
}

#[vtable]
impl<D: Driver> Operations<D> for () {}

/// The requested attributes of a CQ (`struct ib_cq_init_attr`).
#[derive(Clone, Copy)]
pub struct InitAttr {
    /// The least number of entries; no limit has been checked.
    pub cqe: u32,
    /// `enum ib_uverbs_ex_create_cq_flags`.
    pub flags: u32,
}

/// The completions that a CQ notifies of (`enum ib_cq_notify_flags`).
#[derive(Clone, Copy)]
pub struct Notify {
    /// Solicited completions and errors only, not the next of any kind.
    pub solicited_only: bool,
    /// The consumer wants to know how many completions wait already.
    pub report_missed: bool,
}

/// An asynchronous event of a CQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Completions are lost (`IB_EVENT_CQ_ERR`).
    Err,
}

impl<D: Driver> New<'_, D> {
    /// Tells the core how many entries the CQ has: at least as many as were requested.
    pub fn set_cqe(&self, entries: u32) {
        // SAFETY: The object is ours alone until its creation is complete.
        unsafe { (*self.as_raw()).cqe = entries.min(i32::MAX as u32) as i32 };
    }
}

impl<D: Driver> Cq<D> {
    /// Calls the completion handler. Any context; no lock of the provider may be held.
    pub fn notify(&self) {
        if self.is_destroying() {
            return;
        }
        let cq = self.as_raw();
        // SAFETY: The structure is initialised; the core sets the handler before the CQ is used.
        if let Some(handler) = unsafe { (*cq).comp_handler } {
            // SAFETY: The CQ is live. Its context was set along with the handler.
            let context = unsafe { (*cq).cq_context };
            // SAFETY: The CQ exists.
            unsafe { handler(cq, context) };
        }
    }

    /// Reports an event to the consumer. Any context; no lock of the provider may be held.
    pub fn event(&self, event: Event) {
        if self.is_destroying() {
            return;
        }
        let cq = self.as_raw();
        let mut ev: bindings::ib_event = pin_init::zeroed();
        ev.event = match event {
            Event::Err => bindings::ib_event_type_IB_EVENT_CQ_ERR,
        };
        // SAFETY: The structure is initialised.
        ev.device = unsafe { (*cq).device };
        ev.element.cq = cq;
        // SAFETY: As above; the core sets the handler before creation.
        if let Some(handler) = unsafe { (*cq).event_handler } {
            // SAFETY: The CQ is live. Its context was set along with the handler.
            let context = unsafe { (*cq).cq_context };
            // SAFETY: The CQ exists, and the event describes it.
            unsafe { handler(&mut ev, context) };
        }
    }
}

/// # Safety
///
/// As `callback` says.
pub(super) unsafe extern "C" fn create_cq<D: Driver>(
    cq: *mut ib_cq,
    attr: *const ib_cq_init_attr,
    attrs: *mut uverbs_attr_bundle,
) -> Int {
    let udata: *mut ib_udata = if attrs.is_null() {
        null_mut()
    } else {
        // SAFETY: By the requirements of this function.
        unsafe { bindings::bundle_udata(attrs) }
    };
    // SAFETY: By *valid*: the core does not change the attributes during the call.
    let attr = unsafe { &*attr };
    let attr = InitAttr {
        cqe: attr.cqe,
        flags: attr.flags,
    };
    // SAFETY: By *verb*, and by *live* for the context.
    let customer = unsafe { Customer::from_raw(udata) };
    // SAFETY: The core allocated `size_ib_cq` bytes for this call, and uses them only when it is
    // over. `udata` is valid by *verb*, and names the customer.
    to_errno(unsafe {
        Object::create(cq, udata, customer, |new, udata| {
            <D::Cq>::create(new, &attr, udata)
        })
    })
}

/// # Safety
///
/// As `callback` says.
pub(super) unsafe extern "C" fn destroy_cq<D: Driver>(
    cq: *mut ib_cq,
    _udata: *mut ib_udata,
) -> Int {
    // SAFETY: By the requirements of this function.
    unsafe { Object::destroy(cq, <D::Cq>::destroy) };
    0
}

/// # Safety
///
/// As `callback` says.
pub(super) unsafe extern "C" fn poll_cq<D: Driver>(
    cq: *mut ib_cq,
    num: Int,
    wc: *mut ib_wc,
) -> Int {
    // SAFETY: By the requirements of this function.
    let cq = unsafe { Cq::<D>::from_raw(cq) };
    let num = usize::try_from(num).unwrap_or(0);
    // SAFETY: By *valid*: the consumer has room for `num` completions there.
    let mut out = unsafe { WcOut::from_raw(wc, num) };
    match <D::Cq>::poll(cq, &mut out) {
        Err(e) if out.count() == 0 => e.to_errno(),
        _ => count(out.count()),
    }
}

/// # Safety
///
/// As `callback` says.
pub(super) unsafe extern "C" fn req_notify_cq<D: Driver>(
    cq: *mut ib_cq,
    flags: bindings::ib_cq_notify_flags,
) -> Int {
    // SAFETY: By the requirements of this function.
    let cq = unsafe { Cq::<D>::from_raw(cq) };
    let kind = flags & bindings::ib_cq_notify_flags_IB_CQ_SOLICITED_MASK;
    let notify = Notify {
        solicited_only: kind == bindings::ib_cq_notify_flags_IB_CQ_SOLICITED,
        report_missed: flags & bindings::ib_cq_notify_flags_IB_CQ_REPORT_MISSED_EVENTS != 0,
    };
    match <D::Cq>::req_notify(cq, notify) {
        Ok(missed) if notify.report_missed => count(missed as usize),
        other => to_errno(other.map(|_| ())),
    }
}

/// # Safety
///
/// As `callback` says. Only uverbs calls it.
pub(super) unsafe extern "C" fn resize_user_cq<D: Driver>(
    cq: *mut ib_cq,
    cqe: ffi::c_uint,
    udata: *mut ib_udata,
) -> Int {
    // SAFETY: By the requirements of this function.
    let this = unsafe { Cq::<D>::from_raw(cq) };
    // SAFETY: By *verb*, and by *live* for the context.
    let customer = unsafe { Customer::from_raw(udata) };
    // SAFETY: By *verb*: of the verb that this call executes.
    let udata = unsafe { Udata::from_raw(udata) };
    let (Some(customer), Some(mut udata)) = (customer, udata) else {
        return EINVAL.to_errno();
    };
    let resized = udata
        .expect_no_request()
        .and_then(|()| <D::Cq>::resize(this, cqe, customer, &mut udata));
    to_errno(resized.map(|entries| {
        let entries = entries.min(i32::MAX as u32) as i32;
        // SAFETY: The CQ is live. Calls that overlap store numbers that were all true once.
        unsafe { (&raw mut (*cq).cqe).write_volatile(entries) };
    }))
}

/// # Safety
///
/// As `callback` says. The core keeps the CQ during the call.
pub(super) unsafe extern "C" fn fill_res_cq_entry<D: Driver>(
    msg: *mut sk_buff,
    cq: *mut ib_cq,
) -> Int {
    // SAFETY: By the requirements of this function.
    let cq = unsafe { Cq::<D>::from_raw(cq) };
    // SAFETY: By *valid*: the core is filling `msg`, and waits for this call.
    to_errno(unsafe { Details::put(msg, |out| <D::Cq>::describe(cq, out)) })
}
