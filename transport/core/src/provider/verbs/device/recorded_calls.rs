// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests which calls of rdma-core the settings lead to. Functions of this file stand in for those of the library and
//! record their arguments.
//!
//! # Safety
//! The callers are the files of `device`, which pass objects of this file, and memory of their own as they would pass
//! it to the library (see `make.rs`). A function reads and writes no more of that memory than the library would.
//! Objects are never freed, so all pointers stay valid.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::MaybeUninit;
use std::net::Ipv4Addr;
use std::os::fd::RawFd;

use verbs_sys::*;

use super::super::NetLimits;
use super::*;
use crate::GidPlaces;

/// The calls of rdma-core by this thread since [`taken`] was last called.
#[derive(Debug, Default)]
struct RecordedCalls {
    completions: Vec<c_int>,
    shared: Vec<u32>,
    pairs: Vec<(c_uint, ibv_qp_cap)>,
    changes: Vec<ibv_qp_attr>,
    handles: Vec<ibv_ah_attr>,
}

thread_local! {
    static RECORDED: RefCell<RecordedCalls> = RefCell::default();
}

fn record(what: impl FnOnce(&mut RecordedCalls)) {
    RECORDED.with_borrow_mut(what);
}

fn taken() -> RecordedCalls {
    RECORDED.take()
}

/// A leaked, zeroed structure; each structure it is used for is valid when all its bytes are zero.
fn zeroed<T>() -> *mut T {
    Box::into_raw(Box::<MaybeUninit<T>>::new(MaybeUninit::zeroed())).cast()
}

/// A descriptor that is never closed, and never becomes readable.
fn quiet() -> RawFd {
    // SAFETY: the arguments are numbers.
    unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) }
}

macro_rules! functions {
    ($($name:ident($($argument:ident: $kind:ty),*) $(-> $result:ty)? $body:block)*) => {
        $(unsafe extern "C" fn $name($($argument: $kind),*) $(-> $result)? $body)*
    };
}

/// Functions that destroy an object; they do nothing.
macro_rules! ends {
    ($($name:ident: $kind:ty;)*) => {
        $(unsafe extern "C" fn $name(_: *mut $kind) -> c_int { 0 })*
    };
}

/// Functions that these tests do not call.
macro_rules! unused {
    ($($name:ident($($kind:ty),*) $(-> $result:ty)?;)*) => {
        $(unsafe extern "C" fn $name($(_: $kind),*) $(-> $result)? {
            unreachable!("opening and connecting a port does not call this")
        })*
    };
}

ends! {
    close_device: ibv_context;
    dealloc_pd: ibv_pd;
    dereg_mr: ibv_mr;
    destroy_comp_channel: ibv_comp_channel;
    destroy_cq: ibv_cq;
    destroy_srq: ibv_srq;
    destroy_qp: ibv_qp;
    destroy_ah: ibv_ah;
}

unused! {
    get_device_guid(*mut ibv_device) -> u64;
    get_async_event(*mut ibv_context, *mut ibv_async_event) -> c_int;
    ack_async_event(*mut ibv_async_event);
    event_type_str(c_uint) -> *const c_char;
    wc_status_str(c_uint) -> *const c_char;
    reg_mr(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
    reg_mr_iova2(*mut ibv_pd, *mut c_void, usize, u64, c_uint) -> *mut ibv_mr;
    get_cq_event(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
    ack_cq_events(*mut ibv_cq, c_uint);
    modify_srq(*mut ibv_srq, *mut ibv_srq_attr, c_int) -> c_int;
    query_qp(*mut ibv_qp, *mut ibv_qp_attr, c_int, *mut ibv_qp_init_attr) -> c_int;
}

/// The addresses of the only port, with their GID indices.
fn table() -> [(u32, [u8; 16]); 3] {
    let ip = |last| Ipv4Addr::new(203, 0, 113, last).to_ipv6_mapped().octets();
    let mut link_local = [0; 16];
    (link_local[0], link_local[1], link_local[15]) = (0xfe, 0x80, 1);
    [(0, link_local), (1, ip(1)), (3, ip(3))]
}

/// The port's partition keys.
const KEYS: [u16; 3] = [0xffff, 0x8007, 0x0012];

functions! {
    get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
        // SAFETY: memory of the caller for a number.
        unsafe { count.write(1) };
        Box::into_raw(Box::new(zeroed::<ibv_device>()))
    }
    free_device_list(_list: *mut *mut ibv_device) {}
    get_device_name(_device: *mut ibv_device) -> *const c_char {
        c"asked0".as_ptr()
    }
    open_device(_device: *mut ibv_device) -> *mut ibv_context {
        let context = zeroed::<ibv_context>();
        // SAFETY: `zeroed` has just made it.
        unsafe { (*context).async_fd = quiet() };
        context
    }
    query_device(_context: *mut ibv_context, answer: *mut ibv_device_attr) -> c_int {
        // SAFETY: memory of the caller, which has set all bytes to zero.
        let answer = unsafe { &mut *answer };
        (answer.max_qp_wr, answer.max_cqe, answer.max_srq_wr) = (8192, 8192, 8192);
        (answer.max_qp_rd_atom, answer.max_qp_init_rd_atom) = (16, 16);
        answer.phys_port_cnt = 1;
        0
    }
    query_port(_context: *mut ibv_context, _port: u8, answer: *mut ibv_port_attr) -> c_int {
        let attributes = ibv_port_attr {
            state: IBV_PORT_ACTIVE,
            active_mtu: IBV_MTU_4096,
            gid_tbl_len: 4,
            max_msg_sz: 1 << 30,
            pkey_tbl_len: 3,
            link_layer: 2,
            ..ibv_port_attr::default()
        };
        // SAFETY: memory of the caller (head of this file).
        unsafe { answer.write(attributes) };
        0
    }
    query_pkey(_context: *mut ibv_context, _port: u8, place: c_int, key: *mut u16) -> c_int {
        let found = usize::try_from(place).ok().and_then(|place| KEYS.get(place));
        let Some(found) = found else {
            return libc::EINVAL;
        };
        // SAFETY: memory of the caller (head of this file).
        unsafe { key.write(found.to_be()) };
        0
    }
    query_gid_table(
        _context: *mut ibv_context, entries: *mut ibv_gid_entry, most: usize, _flags: u32,
        size: usize
    ) -> isize {
        assert!(most >= 3 && size == size_of::<ibv_gid_entry>());
        for (at, (gid_index, raw)) in table().into_iter().enumerate() {
            let entry = ibv_gid_entry {
                gid: ibv_gid { raw },
                gid_index,
                port_num: 1,
                gid_type: IBV_GID_TYPE_ROCE_V2,
                ndev_ifindex: 0,
            };
            // SAFETY: the caller's array has at least three entries, by the assertion.
            let place = unsafe { entries.add(at) };
            // SAFETY: as above.
            unsafe { place.write(entry) };
        }
        3
    }
    alloc_pd(_context: *mut ibv_context) -> *mut ibv_pd {
        zeroed()
    }
    create_comp_channel(_context: *mut ibv_context) -> *mut ibv_comp_channel {
        let channel = zeroed::<ibv_comp_channel>();
        // SAFETY: `zeroed` has just made it.
        unsafe { (*channel).fd = quiet() };
        channel
    }
    create_cq(
        _context: *mut ibv_context, depth: c_int, _own: *mut c_void,
        _channel: *mut ibv_comp_channel, _vector: c_int
    ) -> *mut ibv_cq {
        record(|recorded| recorded.completions.push(depth));
        zeroed()
    }
    create_srq(_domain: *mut ibv_pd, wanted: *mut ibv_srq_init_attr) -> *mut ibv_srq {
        // SAFETY: memory of the caller (head of this file).
        let depth = unsafe { (*wanted).attr.max_wr };
        record(|recorded| recorded.shared.push(depth));
        zeroed()
    }
    create_qp(_domain: *mut ibv_pd, wanted: *mut ibv_qp_init_attr) -> *mut ibv_qp {
        // SAFETY: memory of the caller (head of this file).
        let wanted = unsafe { &*wanted };
        record(|recorded| recorded.pairs.push((wanted.qp_type, wanted.cap)));
        zeroed()
    }
    modify_qp(_pair: *mut ibv_qp, attributes: *mut ibv_qp_attr, _mask: c_int) -> c_int {
        // SAFETY: memory of the caller (head of this file).
        let attributes = unsafe { *attributes };
        record(|recorded| recorded.changes.push(attributes));
        0
    }
    create_ah(_domain: *mut ibv_pd, attributes: *mut ibv_ah_attr) -> *mut ibv_ah {
        // SAFETY: memory of the caller (head of this file).
        let attributes = unsafe { *attributes };
        record(|recorded| recorded.handles.push(attributes));
        zeroed()
    }
}

static FUNCTIONS: VerbsFunctions = VerbsFunctions {
    get_device_list,
    free_device_list,
    get_device_name,
    get_device_guid,
    open_device,
    close_device,
    query_device,
    query_port,
    query_pkey,
    query_gid_table,
    get_async_event,
    ack_async_event,
    event_type_str,
    wc_status_str,
    alloc_pd,
    dealloc_pd,
    reg_mr,
    reg_mr_iova2,
    dereg_mr,
    create_comp_channel,
    destroy_comp_channel,
    create_cq,
    destroy_cq,
    get_cq_event,
    ack_cq_events,
    create_srq,
    modify_srq,
    destroy_srq,
    create_qp,
    modify_qp,
    query_qp,
    destroy_qp,
    create_ah,
    destroy_ah,
};

/// Opens the port with these settings.
fn open(limits: &NetLimits) -> Result<VerbsDevice, OpenError> {
    let port = PortName {
        name: "asked0",
        port: 1,
    };
    let (depths, terms) = (limits.depths(), &limits.terms);
    VerbsDevice::open_by(&FUNCTIONS, port, &depths, terms, 0x1234, None)
}

/// The calls made when the port is opened, a queue pair is connected, and an address handle is created.
fn recorded_with(limits: &NetLimits) -> (PortAttr, RecordedCalls) {
    taken();
    let mut port = open(limits).unwrap_or_else(|error| panic!("{error}"));
    let address = PortAddress {
        link: LinkLayer::Ethernet,
        lid: 0,
        number: 9,
        packet_bytes: 4096,
        gid: table()[1].1,
    };
    let remote = RemotePair {
        address,
        number: 8,
        rq_psn: 1,
        sq_psn: 2,
        timeout_exp: limits.terms.timeout_exp(),
    };
    let pair = port.create().unwrap();
    port.connect(pair, &remote).unwrap();
    port.create_address_handle(&address).unwrap();
    (port.facts().clone(), taken())
}

#[test]
fn queue_depths_follow_the_settings() {
    let limits = NetLimits {
        send_depth: 100,
        receive_depth: 300,
        datagram_depth: 50,
        datagram_receives: 60,
        inline_bytes: 0,
        ..NetLimits::DEFAULT
    };
    let (facts, recorded) = recorded_with(&limits);
    assert_eq!(recorded.shared, [300]);
    assert_eq!(recorded.completions, [640 + 128 + 50; 2]);
    let depths = |kind| {
        let of_kind = recorded
            .pairs
            .iter()
            .filter(move |(other, _)| *other == kind);
        of_kind.map(|(_, cap)| (cap.max_send_wr, cap.max_recv_wr, cap.max_inline_data))
    };
    assert!(depths(IBV_QPT_RC).eq([(100, 0, 0); 2]), "{recorded:?}");
    assert!(depths(IBV_QPT_UD).eq([(50, 60, 0)]), "{recorded:?}");
    assert_eq!((facts.depth, facts.inline_bytes), (100, 0));
    let (_, recorded) = recorded_with(&NetLimits::DEFAULT);
    assert_eq!(recorded.pairs[0].1.max_inline_data, 220);
    assert_eq!(
        (recorded.shared, recorded.completions),
        (vec![192], vec![1024; 2])
    );
}

#[test]
fn queue_pair_and_address_handle_attributes_follow_the_settings() {
    let terms = NetTerms {
        packet_bytes: 2048,
        reads: 3,
        answer_ms: 1000,
        retries: 2,
        rnr_retry: 5,
        not_ready_us: 10,
        service_level: 4,
        traffic_class: 8,
        hops: 3,
        partition: 0x12,
        gids: GidPlaces::of([3].into_iter()),
    };
    let limits = NetLimits {
        terms,
        ..NetLimits::DEFAULT
    };
    let (facts, recorded) = recorded_with(&limits);
    let state = |state| {
        let of_state = move |change: &&ibv_qp_attr| change.qp_state == state;
        recorded.changes.iter().filter(of_state)
    };
    // One change of the datagram queue pair, and one of the reliable queue pair.
    assert!(
        state(IBV_QPS_INIT)
            .map(|change| change.pkey_index)
            .eq([2; 2])
    );
    let receiving = state(IBV_QPS_RTR).next_back().unwrap();
    assert_eq!(receiving.path_mtu, IBV_MTU_2048);
    assert_eq!(
        (receiving.min_rnr_timer, receiving.max_dest_rd_atomic),
        (1, 3)
    );
    let sending = state(IBV_QPS_RTS).next_back().unwrap();
    assert_eq!((sending.timeout, sending.retry_cnt), (18, 2));
    assert_eq!((sending.rnr_retry, sending.max_rd_atomic), (5, 3));
    for handle in [recorded.handles[0], receiving.ah_attr] {
        assert_eq!((handle.sl, handle.grh.traffic_class), (4, 8));
        assert_eq!((handle.grh.hop_limit, handle.grh.sgid_index), (3, 3));
    }
    assert_eq!((facts.packet_bytes, facts.gid), (2048, table()[2].1));
}

#[test]
fn default_settings_give_the_default_attributes() {
    let (facts, recorded) = recorded_with(&NetLimits::DEFAULT);
    let last = |state| {
        let mut changes = recorded.changes.iter().rev();
        changes.find(|change| change.qp_state == state).unwrap()
    };
    let (receiving, sending) = (last(IBV_QPS_RTR), last(IBV_QPS_RTS));
    assert_eq!(last(IBV_QPS_INIT).pkey_index, 0);
    assert_eq!(
        (receiving.min_rnr_timer, receiving.path_mtu),
        (12, IBV_MTU_4096)
    );
    assert_eq!(
        (sending.timeout, sending.retry_cnt, sending.rnr_retry),
        (14, 6, 6)
    );
    let handle = recorded.handles[0];
    assert_eq!(
        (handle.sl, handle.grh.traffic_class, handle.grh.hop_limit),
        (0, 106, 64)
    );
    assert_eq!((facts.gid, handle.grh.sgid_index), (table()[1].1, 1));
}

#[test]
fn opening_fails_naming_the_missing_partition_or_gid_index() {
    let why = |terms| {
        let limits = NetLimits {
            terms,
            ..NetLimits::DEFAULT
        };
        open(&limits).map(drop).unwrap_err().to_string()
    };
    let message = why(NetTerms {
        partition: 0x9999,
        ..NetTerms::DEFAULT
    });
    assert!(
        message.contains("0x9999") && message.contains("RMPI_NET_PARTITION"),
        "{message}"
    );
    let message = why(NetTerms {
        gids: GidPlaces::of([2].into_iter()),
        ..NetTerms::DEFAULT
    });
    assert!(
        message.contains("RMPI_NET_GID_INDEX does not name"),
        "{message}"
    );
}

#[test]
fn a_configured_gid_index_overrides_the_choice() {
    let limits = |places: &[u8]| NetLimits {
        terms: NetTerms {
            gids: GidPlaces::of(places.iter().copied()),
            ..NetTerms::DEFAULT
        },
        ..NetLimits::DEFAULT
    };
    let chosen = |places: &[u8]| recorded_with(&limits(places)).0.gid_index;
    assert_eq!(
        [chosen(&[]), chosen(&[0]), chosen(&[3, 1]), chosen(&[3])],
        [1, 0, 1, 3]
    );
}
