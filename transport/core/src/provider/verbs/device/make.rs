// SPDX-License-Identifier: MIT OR Apache-2.0
//! The library's calls that create or query an object, each behind a safe function.
//!
//! # Safety
//! Every call gets live objects (O1 in `object.rs`), and memory of the function itself that stays valid for the call
//! and to which the library keeps no pointer. The caller ensures that objects are dropped before the object from which
//! they were made (O2).
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};

use verbs_sys::{
    IBV_GID_TYPE_IB, IBV_GID_TYPE_ROCE_V1, IBV_GID_TYPE_ROCE_V2, VerbsFunctions, ibv_ah,
    ibv_ah_attr, ibv_comp_channel, ibv_context, ibv_cq, ibv_device, ibv_device_attr, ibv_gid_entry,
    ibv_mr, ibv_pd, ibv_port_attr, ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_init_attr, ibv_srq,
    ibv_srq_attr, ibv_srq_init_attr,
};

use super::super::gid::{GidEntry, GidType};
use super::super::port::CallError;
use super::object::{VerbsObject, check, last_error};

type Made<T> = Result<VerbsObject<T>, CallError>;

/// The devices of this host.
pub(super) struct Devices {
    verbs: &'static VerbsFunctions,
    list: NonNull<*mut ibv_device>,
    count: usize,
}

impl Devices {
    pub(super) fn list(verbs: &'static VerbsFunctions) -> Result<Self, CallError> {
        let mut count = 0;
        // SAFETY: writes to a number of this function's own.
        let list = unsafe { (verbs.get_device_list)(&raw mut count) };
        let list = NonNull::new(list).ok_or_else(|| last_error("ibv_get_device_list"))?;
        Ok(Self {
            verbs,
            list,
            count: usize::try_from(count).unwrap_or(0),
        })
    }

    pub(super) fn names(&self) -> Vec<String> {
        (0..self.count).map(|at| self.name(at)).collect()
    }

    fn name(&self, at: usize) -> String {
        // SAFETY: a device of the list.
        let name = unsafe { (self.verbs.get_device_name)(self.device(at)) };
        if name.is_null() {
            return String::new();
        }
        // SAFETY: a C string in the device, which is valid as long as the list.
        let name = unsafe { CStr::from_ptr(name) };
        name.to_string_lossy().into_owned()
    }

    fn device(&self, at: usize) -> *mut ibv_device {
        assert!(at < self.count);
        // SAFETY: inside the list, which has `count` places.
        let place = unsafe { self.list.add(at) };
        // SAFETY: a place that the library has filled.
        unsafe { place.read() }
    }

    /// Opens a device.
    pub(super) fn open(&self, at: usize) -> Made<ibv_context> {
        // SAFETY: a device of the list. A context keeps its device, independent of the list.
        let context = unsafe { (self.verbs.open_device)(self.device(at)) };
        // SAFETY: just created, and not closed elsewhere.
        unsafe { VerbsObject::take("ibv_open_device", context, self.verbs.close_device) }
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        // SAFETY: the library's list, freed once.
        unsafe { (self.verbs.free_device_list)(self.list.as_ptr()) };
    }
}

pub(super) fn device_attributes(
    verbs: &VerbsFunctions,
    context: &VerbsObject<ibv_context>,
) -> Result<ibv_device_attr, CallError> {
    let mut attributes = MaybeUninit::<ibv_device_attr>::zeroed();
    // SAFETY: a live context, and room for the result.
    let answer = unsafe { (verbs.query_device)(context.as_ptr(), attributes.as_mut_ptr()) };
    check("ibv_query_device", answer)?;
    // SAFETY: the structure consists of numbers, so all zeros are a valid value, and so are any bytes that the library
    // has written.
    Ok(unsafe { attributes.assume_init() })
}

pub(super) fn port_attributes(
    verbs: &VerbsFunctions,
    context: &VerbsObject<ibv_context>,
    port: u8,
) -> Result<ibv_port_attr, CallError> {
    let mut attributes = ibv_port_attr::default();
    // SAFETY: a live context, and room for the result.
    let answer = unsafe { (verbs.query_port)(context.as_ptr(), port, &raw mut attributes) };
    check("ibv_query_port", answer)?;
    Ok(attributes)
}

/// The partition keys of a port, by index; `places` is the size of its table.
pub(super) fn partitions(
    verbs: &VerbsFunctions,
    context: &VerbsObject<ibv_context>,
    port: u8,
    places: u16,
) -> Result<Vec<u16>, CallError> {
    let key = |place: u16| {
        let mut key = 0;
        // SAFETY: a live context, and room for a key.
        let answer =
            unsafe { (verbs.query_pkey)(context.as_ptr(), port, c_int::from(place), &raw mut key) };
        check("ibv_query_pkey", answer)?;
        Ok(u16::from_be(key))
    };
    (0..places).map(key).collect()
}

/// The GIDs of a port. `places`: at least the sum of the GID table sizes of all ports of the device.
pub(super) fn gids(
    verbs: &VerbsFunctions,
    context: &VerbsObject<ibv_context>,
    port: u8,
    places: usize,
) -> Result<Vec<GidEntry>, CallError> {
    let mut table = vec![ibv_gid_entry::default(); places];
    let size = size_of::<ibv_gid_entry>();
    // SAFETY: a live context, and room for `places` entries of the given size.
    let count =
        unsafe { (verbs.query_gid_table)(context.as_ptr(), table.as_mut_ptr(), places, 0, size) };
    let Ok(count) = usize::try_from(count) else {
        let errno = i32::try_from(count.unsigned_abs()).unwrap_or(0);
        let call = "ibv_query_gid_table";
        return Err(CallError { call, errno });
    };
    table.truncate(count);
    let its = table.iter().filter(|one| one.port_num == u32::from(port));
    Ok(its.filter_map(entry).collect())
}

fn entry(entry_attr: &ibv_gid_entry) -> Option<GidEntry> {
    let kind = match entry_attr.gid_type {
        IBV_GID_TYPE_IB => GidType::Infiniband,
        IBV_GID_TYPE_ROCE_V1 => GidType::RoceV1,
        IBV_GID_TYPE_ROCE_V2 => GidType::RoceV2,
        _ => return None,
    };
    Some(GidEntry {
        index: entry_attr.gid_index,
        gid: entry_attr.gid.raw,
        kind,
        interface: entry_attr.ndev_ifindex,
    })
}

pub(super) fn domain(verbs: &VerbsFunctions, context: &VerbsObject<ibv_context>) -> Made<ibv_pd> {
    // SAFETY: a live context.
    let domain = unsafe { (verbs.alloc_pd)(context.as_ptr()) };
    // SAFETY: just created, and not freed elsewhere.
    unsafe { VerbsObject::take("ibv_alloc_pd", domain, verbs.dealloc_pd) }
}

/// A completion channel in non-blocking mode.
pub(super) fn channel(
    verbs: &VerbsFunctions,
    context: &VerbsObject<ibv_context>,
) -> Made<ibv_comp_channel> {
    // SAFETY: a live context.
    let channel = unsafe { (verbs.create_comp_channel)(context.as_ptr()) };
    // SAFETY: just created, and not destroyed elsewhere.
    let channel = unsafe {
        VerbsObject::take(
            "ibv_create_comp_channel",
            channel,
            verbs.destroy_comp_channel,
        )
    }?;
    never_wait(channel_descriptor(&channel))?;
    Ok(channel)
}

pub(super) fn channel_descriptor(channel: &VerbsObject<ibv_comp_channel>) -> RawFd {
    // SAFETY: a live channel, whose fields do not change.
    unsafe { (*channel.as_ptr()).fd }
}

/// The descriptor of asynchronous events, set to non-blocking mode.
pub(super) fn event_descriptor(context: &VerbsObject<ibv_context>) -> Result<RawFd, CallError> {
    // SAFETY: a live context, whose fields do not change.
    let descriptor = unsafe { (*context.as_ptr()).async_fd };
    never_wait(descriptor)?;
    Ok(descriptor)
}

fn never_wait(descriptor: RawFd) -> Result<(), CallError> {
    // SAFETY: takes only numbers, and queries a descriptor.
    let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
    if flags < 0 {
        return Err(last_error("fcntl"));
    }
    // SAFETY: takes only numbers; the descriptor belongs to an object that is not shared.
    let answer = unsafe { libc::fcntl(descriptor, libc::F_SETFL, flags | libc::O_NONBLOCK) };
    check("fcntl", answer)
}

/// A descriptor that is readable while one of `descriptors` is.
pub(in crate::provider::verbs) fn watch(descriptors: &[RawFd]) -> Result<OwnedFd, CallError> {
    // SAFETY: takes only a number.
    let raw = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    if raw < 0 {
        return Err(last_error("epoll_create1"));
    }
    // SAFETY: just created, with no other owner.
    let watch = unsafe { OwnedFd::from_raw_fd(raw) };
    for descriptor in descriptors {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN.cast_unsigned(),
            u64: 0,
        };
        let add = libc::EPOLL_CTL_ADD;
        // SAFETY: two descriptors, which the kernel validates, and a structure that is only read during the call.
        let answer =
            unsafe { libc::epoll_ctl(watch.as_raw_fd(), add, *descriptor, &raw mut event) };
        check("epoll_ctl", answer)?;
    }
    Ok(watch)
}

pub(super) fn completions(
    verbs: &VerbsFunctions,
    context: &VerbsObject<ibv_context>,
    channel: &VerbsObject<ibv_comp_channel>,
    depth: u32,
) -> Made<ibv_cq> {
    let depth = c_int::try_from(depth).unwrap_or(c_int::MAX);
    // SAFETY: a live context and channel; completion vector 0 always exists.
    let queue = unsafe {
        (verbs.create_cq)(
            context.as_ptr(),
            depth,
            ptr::null_mut(),
            channel.as_ptr(),
            0,
        )
    };
    // SAFETY: just created, and not destroyed elsewhere.
    unsafe { VerbsObject::take("ibv_create_cq", queue, verbs.destroy_cq) }
}

pub(super) fn shared_receives(
    verbs: &VerbsFunctions,
    domain: &VerbsObject<ibv_pd>,
    depth: u32,
) -> Made<ibv_srq> {
    let mut wanted = ibv_srq_init_attr {
        srq_context: ptr::null_mut(),
        attr: ibv_srq_attr {
            max_wr: depth,
            max_sge: 1,
            srq_limit: 0,
        },
    };
    // SAFETY: a live domain; the structure is only used during the call.
    let queue = unsafe { (verbs.create_srq)(domain.as_ptr(), &raw mut wanted) };
    // SAFETY: just created, and not destroyed elsewhere.
    unsafe { VerbsObject::take("ibv_create_srq", queue, verbs.destroy_srq) }
}

/// The objects that a queue pair is created with.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueuePairInitAttr<'a> {
    pub(super) domain: &'a VerbsObject<ibv_pd>,
    pub(super) sends: &'a VerbsObject<ibv_cq>,
    pub(super) receives: &'a VerbsObject<ibv_cq>,
    pub(super) shared: Option<&'a VerbsObject<ibv_srq>>,
}

/// A queue pair of the type `IBV_QPT_*`, and the inline size that was granted.
pub(super) fn queue_pair(
    verbs: &VerbsFunctions,
    parts: QueuePairInitAttr<'_>,
    kind: u32,
    capacity: ibv_qp_cap,
) -> Result<(VerbsObject<ibv_qp>, u32), CallError> {
    let mut wanted = ibv_qp_init_attr {
        qp_context: ptr::null_mut(),
        send_cq: parts.sends.as_ptr(),
        recv_cq: parts.receives.as_ptr(),
        srq: parts.shared.map_or(ptr::null_mut(), VerbsObject::as_ptr),
        cap: capacity,
        qp_type: kind,
        // A work request generates a completion only if it is signaled.
        sq_sig_all: 0,
    };
    // SAFETY: live objects; the structure is only used during the call.
    let pair = unsafe { (verbs.create_qp)(parts.domain.as_ptr(), &raw mut wanted) };
    // SAFETY: just created, and not destroyed elsewhere.
    let pair = unsafe { VerbsObject::take("ibv_create_qp", pair, verbs.destroy_qp) }?;
    Ok((pair, wanted.cap.max_inline_data))
}

/// The queue pair number.
pub(super) fn number_of(pair: &VerbsObject<ibv_qp>) -> u32 {
    // SAFETY: a live queue pair, whose number does not change.
    unsafe { (*pair.as_ptr()).qp_num }
}

/// Sets the attributes of a queue pair that `mask` selects.
pub(super) fn modify(
    verbs: &VerbsFunctions,
    pair: &VerbsObject<ibv_qp>,
    mut attributes: ibv_qp_attr,
    mask: u32,
) -> Result<(), CallError> {
    // SAFETY: a live queue pair; the structure is only used during the call.
    let answer =
        unsafe { (verbs.modify_qp)(pair.as_ptr(), &raw mut attributes, mask.cast_signed()) };
    check("ibv_modify_qp", answer)
}

pub(super) fn address_handle(
    verbs: &VerbsFunctions,
    domain: &VerbsObject<ibv_pd>,
    mut attributes: ibv_ah_attr,
) -> Made<ibv_ah> {
    // SAFETY: a live domain; the structure is only used during the call.
    let handle = unsafe { (verbs.create_ah)(domain.as_ptr(), &raw mut attributes) };
    // SAFETY: just created, and not destroyed elsewhere.
    unsafe { VerbsObject::take("ibv_create_ah", handle, verbs.destroy_ah) }
}

/// Registers memory with the access bits `IBV_ACCESS_*`.
///
/// # Safety
/// As for `VerbsPort::register`, until the region is dropped.
pub(super) unsafe fn region(
    verbs: &VerbsFunctions,
    domain: &VerbsObject<ibv_pd>,
    base: NonNull<u8>,
    bytes: usize,
    access: u32,
) -> Made<ibv_mr> {
    let (base, access) = (base.as_ptr().cast(), access.cast_signed());
    // SAFETY: a live domain; the caller's guarantee for the memory.
    let region = unsafe { (verbs.reg_mr)(domain.as_ptr(), base, bytes, access) };
    // SAFETY: just created, and not destroyed elsewhere.
    unsafe { VerbsObject::take("ibv_reg_mr", region, verbs.dereg_mr) }
}

/// Local and remote key.
pub(super) fn keys_of(region: &VerbsObject<ibv_mr>) -> (u32, u32) {
    // SAFETY: a live region, whose keys do not change.
    let local = unsafe { (*region.as_ptr()).lkey };
    // SAFETY: as above.
    let remote = unsafe { (*region.as_ptr()).rkey };
    (local, remote)
}
