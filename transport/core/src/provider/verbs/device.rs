// SPDX-License-Identifier: MIT OR Apache-2.0
//! A port of a real device, through rdma-core.
//!
//! | file           | content |
//! |----------------|--------------------------------------------------------|
//! | `object.rs`    | ownership of the library's objects |
//! | `make.rs`      | the calls that create or query an object |
//! | `list.rs`      | the devices and ports of the host |
//! | `pair.rs`      | attributes of queue pairs and address handles |
//! | `datagrams.rs` | repair of the datagram queue pair after an error |
//! | `post.rs`      | work requests |
//! | `poll.rs`      | completions, completion events and asynchronous events |
//!
//! # Safety
//! - **D1**: the objects of a [`VerbsDevice`] are used only by its methods, and calls with `&mut self` exclude each
//!   other; so a `VerbsDevice` may move to another thread, and no object is destroyed while it is in use. The objects
//!   are destroyed in the order of the fields (O2).
//! - **D2**: no value in a work request makes this process access memory that it was not lent. The device checks keys.
//!   Bodies that the library itself reads ([`WorkBody::Inline`]) are borrowed for the call. The library itself writes
//!   only to receive buffers (adapters may put short messages into the completion, from which the library copies them),
//!   and each buffer is checked against the regions when it is posted. A [`Sge`] is never sent inline: its key would
//!   not be checked.
//! - **D3**: after a region is deregistered, the library copies no message to it from a completion: the completions
//!   from which it might are polled before `deregister` returns.
#![allow(unsafe_code)]

mod datagrams;
mod list;
mod make;
mod object;
mod pair;
mod poll;
mod post;

#[cfg(test)]
mod guest;
#[cfg(test)]
mod recorded_calls;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use verbs_sys::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE, IBV_ATOMIC_NONE, IBV_PORT_ACTIVE, VerbsFunctions, ibv_ah,
    ibv_comp_channel, ibv_context, ibv_cq, ibv_device_attr, ibv_mr, ibv_pd, ibv_qp, ibv_srq,
    ibv_wc,
};

use super::NetTerms;
use super::address::{LinkLayer, PortAddress};
use super::error_text::OpenError;
use super::gid::{self, HostRoute};
use super::port::{
    AddressHandle, CallError, CqKind, DatagramDestination, Depths, PortAttr, PortCompletion,
    PortCounts, PortEvent, QueueFull, QueuePairHandle, Receives, Region, RegionAccess, RemotePair,
    Sge, VerbsPort, WorkBody, WorkRequest,
};
use super::slab::Slab;
use crate::wait;
use datagrams::Repair;
use list::PortQuery;
pub(crate) use list::{DiscoveredDevice, DiscoveredPort, list};
pub(super) use make::watch;
use make::{Devices, QueuePairInitAttr};
use object::VerbsObject;
pub(super) use poll::status_of;
use post::BATCH;

/// An open port: the objects of rdma-core, in the order in which they must be destroyed, and the state and buffers of
/// this provider.
#[derive(Debug)]
pub(crate) struct VerbsDevice {
    verbs: &'static VerbsFunctions,
    facts: PortAttr,
    depths: Depths,
    counts: Arc<PortCounts>,
    q_key: u32,
    /// An address to which packets will go, if known.
    toward: Option<IpAddr>,
    datagram_number: u32,

    // The objects, in the order in which they are destroyed.
    pairs: Slab<VerbsObject<ibv_qp>>,
    datagrams: VerbsObject<ibv_qp>,
    handles: Slab<VerbsObject<ibv_ah>>,
    shared: VerbsObject<ibv_srq>,
    sends: VerbsObject<ibv_cq>,
    receives: VerbsObject<ibv_cq>,
    channel: VerbsObject<ibv_comp_channel>,
    regions: Slab<DeviceRegion>,
    domain: VerbsObject<ibv_pd>,
    context: VerbsObject<ibv_context>,
    event_fd: OwnedFd,

    /// The repair of the datagram queue pair; `None`: the queue pair works.
    repair: Option<Repair>,
    /// Buffer for polled completions.
    polled: Box<[ibv_wc; BATCH]>,
    /// Completions of sends and of receives that are returned by the next polls; most of them were polled ahead.
    kept: [VecDeque<PortCompletion>; 2],
    /// Events detected by other means than `ibv_get_async_event`.
    events: VecDeque<PortEvent>,
    is_lost: bool,
}

/// The name of a port.
#[derive(Clone, Copy, Debug)]
struct PortName<'a> {
    name: &'a str,
    port: u8,
}

/// A memory region, and the addresses that it covers.
#[derive(Debug)]
struct DeviceRegion {
    // Dropping this object ends the device's access.
    _region: VerbsObject<ibv_mr>,
    first: u64,
    bytes: u64,
    local_key: u32,
    /// Whether receive buffers in the region were posted.
    receives: bool,
}

// SAFETY: D1; rdma-core's objects belong to no thread.
unsafe impl Send for VerbsDevice {}

impl VerbsDevice {
    /// Opens a port for datagrams with the Q_Key `q_key` (its top bit is clear) and for reliable queue pairs. `toward`:
    /// the destination of packets, if known; used to choose among several addresses of the port.
    pub(crate) fn open(
        name: &str,
        port: u8,
        depths: &Depths,
        terms: &NetTerms,
        q_key: u32,
        toward: Option<IpAddr>,
    ) -> Result<Self, OpenError> {
        let verbs = VerbsFunctions::load().map_err(OpenError::NoLibrary)?;
        let port = PortName { name, port };
        Self::open_by(verbs, port, depths, terms, q_key, toward)
    }

    fn open_by(
        verbs: &'static VerbsFunctions,
        PortName { name, port }: PortName<'_>,
        depths: &Depths,
        terms: &NetTerms,
        q_key: u32,
        toward: Option<IpAddr>,
    ) -> Result<Self, OpenError> {
        let devices = Devices::list(verbs).map_err(OpenError::NoList)?;
        let names = devices.names();
        let Some(at) = names.iter().position(|found| found == name) else {
            let device = name.into();
            return Err(OpenError::NoDevice {
                device,
                found: names,
            });
        };
        let failed = |error| OpenError::Call {
            device: name.into(),
            port,
            error,
        };
        let context = devices.open(at).map_err(failed)?;
        let query = PortQuery::new(verbs, &context, name, terms).map_err(failed)?;
        if !query.ports().any(|found| found == port) {
            return Err(OpenError::NoPort {
                device: name.into(),
                port,
                count: query.ports().count(),
            });
        }
        let interfaces = gid::interfaces().unwrap_or_default();
        let found = query.query(port, &interfaces, route_toward(toward), None);
        let found = found.map_err(failed)?;
        if let Some(why) = found.unfit {
            return Err(OpenError::Unfit {
                found: Box::new(found),
                why,
            });
        }
        let wanted = (depths, terms);
        Self::set_up(verbs, context, &found, wanted, q_key, toward).map_err(failed)
    }

    // tidy: long (one field a line)
    fn set_up(
        verbs: &'static VerbsFunctions,
        context: VerbsObject<ibv_context>,
        found: &DiscoveredPort,
        (depths, terms): (&Depths, &NetTerms),
        q_key: u32,
        toward: Option<IpAddr>,
    ) -> Result<Self, CallError> {
        debug_assert!(
            q_key >> 31 == 0,
            "such a key would be replaced by the queue pair's own"
        );
        let limits = make::device_attributes(verbs, &context)?;
        let mut depths = within(*depths, &limits);
        let message_bytes = make::port_attributes(verbs, &context, found.port)?.max_msg_sz;
        let events = make::event_descriptor(&context)?;
        let domain = make::domain(verbs, &context)?;
        let channel = make::channel(verbs, &context)?;
        let sends = make::completions(verbs, &context, &channel, depths.completions)?;
        let receives = make::completions(verbs, &context, &channel, depths.completions)?;
        let shared = make::shared_receives(verbs, &domain, depths.shared)?;
        let mut parts = QueuePairInitAttr {
            domain: &domain,
            sends: &sends,
            receives: &receives,
            shared: Some(&shared),
        };
        // A reliable queue pair is made as a trial, to find the size of inline bodies that the device grants.
        depths.inline_bytes = pair::reliable(verbs, parts, &depths)?.1;
        parts.shared = None;
        let (datagrams, inline_bytes) = pair::datagrams(verbs, parts, &depths)?;
        depths.inline_bytes = inline_bytes;
        let facts = facts(found, &limits, &depths, terms, message_bytes);
        pair::start_datagrams(verbs, &datagrams, &facts, q_key)?;
        let event_fd = watch(&[make::channel_descriptor(&channel), events])?;
        Ok(Self {
            verbs,
            facts,
            depths,
            counts: Arc::default(),
            q_key,
            toward,
            datagram_number: make::number_of(&datagrams),
            pairs: Slab::new(),
            datagrams,
            handles: Slab::new(),
            shared,
            sends,
            receives,
            channel,
            regions: Slab::new(),
            domain,
            context,
            event_fd,
            repair: None,
            polled: Box::new([ibv_wc::default(); BATCH]),
            kept: [VecDeque::new(), VecDeque::new()],
            events: VecDeque::new(),
            is_lost: false,
        })
    }

    fn pair(&self, pair: QueuePairHandle) -> Option<&VerbsObject<ibv_qp>> {
        let found = self.pairs.get(pair.id)?;
        (make::number_of(found) == pair.number).then_some(found)
    }
}

impl VerbsPort for VerbsDevice {
    const CLOCK_EVERY: u64 = 32;

    fn now_ns(&self) -> u64 {
        wait::monotonic_ns()
    }

    fn count_into(&mut self, counts: Arc<PortCounts>) {
        self.counts = counts;
    }

    fn facts(&self) -> &PortAttr {
        &self.facts
    }

    fn refresh(&mut self) -> Result<(), CallError> {
        let interfaces = gid::interfaces().unwrap_or_default();
        let route = route_toward(self.toward);
        let device = self.facts.device.clone();
        let query = PortQuery::new(self.verbs, &self.context, &device, &self.facts.terms)?;
        let found = query.query(self.facts.port, &interfaces, route, None)?;
        update(&mut self.facts, &found);
        Ok(())
    }

    unsafe fn register(
        &mut self,
        base: NonNull<u8>,
        bytes: usize,
        access: RegionAccess,
    ) -> Result<Region, CallError> {
        let register = |bits| {
            // SAFETY: the caller's guarantee; the region is dropped in `deregister`, or with this port.
            unsafe { make::region(self.verbs, &self.domain, base, bytes, bits) }
        };
        let bits = access_bits(access, self.facts.atomics);
        let region = match register(bits) {
            // The program may also send from read-only memory, such as constants: that is registered without write
            // access.
            Err(error) if access == RegionAccess::Read && error.errno == libc::EFAULT => {
                register(IBV_ACCESS_REMOTE_READ)
            }
            answer => answer,
        }?;
        self.counts.add(bytes as u64);
        let (local_key, remote_key) = make::keys_of(&region);
        let id = self.regions.insert(DeviceRegion {
            _region: region,
            first: base.addr().get() as u64,
            bytes: bytes as u64,
            local_key,
            receives: false,
        });
        Ok(Region {
            id,
            local_key,
            remote_key,
        })
    }

    fn deregister(&mut self, region: Region) {
        let held = self.regions.get(region.id);
        if held.is_none_or(|held| held.local_key != region.local_key) {
            return;
        }
        let held = self.regions.remove(region.id);
        self.counts.take(held.as_ref().map_or(0, |held| held.bytes));
        // If the region contains receive buffers, all completions are polled now (D3).
        if held.is_some_and(|held| held.receives) {
            self.keep_completions();
        }
    }

    #[inline]
    fn post_receives(&mut self, queue: Receives, buffers: &[(u64, Sge)]) -> usize {
        self.post_buffers(queue, buffers)
    }

    fn datagram_number(&self) -> u32 {
        self.datagram_number
    }

    fn datagram_key(&self) -> u32 {
        self.q_key
    }

    fn create_address_handle(&mut self, to: &PortAddress) -> Result<AddressHandle, CallError> {
        let attributes = pair::ah_attr(&self.facts, to);
        let handle = make::address_handle(self.verbs, &self.domain, attributes)?;
        Ok(AddressHandle::at(self.handles.insert(handle)))
    }

    fn destroy_address_handle(&mut self, handle: AddressHandle) {
        self.handles.remove(handle.place());
    }

    #[inline]
    fn post_datagram(
        &mut self,
        to: DatagramDestination,
        work: u64,
        body: WorkBody<'_>,
        signaled: bool,
    ) -> Result<(), QueueFull> {
        self.send_datagram(to, work, body, signaled)
    }

    fn create(&mut self) -> Result<QueuePairHandle, CallError> {
        let parts = QueuePairInitAttr {
            domain: &self.domain,
            sends: &self.sends,
            receives: &self.receives,
            shared: Some(&self.shared),
        };
        let (pair, _) = pair::reliable(self.verbs, parts, &self.depths)?;
        pair::start(self.verbs, &pair, &self.facts)?;
        let number = make::number_of(&pair);
        let id = self.pairs.insert(pair);
        Ok(QueuePairHandle { id, number })
    }

    fn connect(&mut self, pair: QueuePairHandle, to: &RemotePair) -> Result<(), CallError> {
        let Some(found) = self.pair(pair) else {
            return Err(CallError {
                call: "ibv_modify_qp",
                errno: libc::EINVAL,
            });
        };
        pair::join(self.verbs, found, &self.facts, to)
    }

    fn fail(&mut self, pair: QueuePairHandle) {
        if let Some(found) = self.pair(pair) {
            pair::fail(self.verbs, found);
        }
    }

    fn destroy(&mut self, pair: QueuePairHandle) {
        if self.pair(pair).is_some() {
            self.fail(pair);
            self.destroy_pair(pair);
        }
    }

    #[inline]
    fn post(&mut self, pair: QueuePairHandle, requests: &[WorkRequest<'_>]) -> usize {
        self.post_requests(pair, requests)
    }

    #[inline(always)]
    fn post_inline(
        &mut self,
        pair: QueuePairHandle,
        work: u64,
        body: &[u8],
        signaled: bool,
    ) -> bool {
        self.send_inline(pair, work, body, signaled)
    }

    #[inline]
    fn poll(&mut self, which: CqKind, done: &mut [PortCompletion]) -> usize {
        self.take_done(which, done)
    }

    #[inline(always)]
    fn poll_first(&mut self, which: CqKind) -> Option<PortCompletion> {
        self.take_first_done(which)
    }

    fn arm(&mut self) -> Result<(), CallError> {
        self.arm_queues()
    }

    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.event_fd.as_fd())
    }

    fn ack_events(&mut self) {
        self.ack_all_events();
    }

    fn next_event(&mut self) -> Option<PortEvent> {
        self.take_event()
    }
}

fn route_toward(address: Option<IpAddr>) -> HostRoute {
    let route = address.map(gid::route_to);
    route.and_then(Result::ok).unwrap_or(HostRoute::Anywhere)
}

/// The requested depths, limited to what the device supports.
fn within(requested: Depths, limits: &ibv_device_attr) -> Depths {
    let at_most = |requested: u32, limit: i32| requested.clamp(1, limit.cast_unsigned().max(1));
    Depths {
        completions: at_most(requested.completions, limits.max_cqe),
        sends: at_most(requested.sends, limits.max_qp_wr),
        datagrams: at_most(requested.datagrams, limits.max_qp_wr),
        shared: at_most(requested.shared, limits.max_srq_wr),
        datagram_buffers: at_most(requested.datagram_buffers, limits.max_qp_wr),
        inline_bytes: requested.inline_bytes,
    }
}

fn facts(
    found: &DiscoveredPort,
    limits: &ibv_device_attr,
    depths: &Depths,
    terms: &NetTerms,
    message_bytes: u32,
) -> PortAttr {
    let mut facts = PortAttr {
        device: found.device.clone(),
        port: found.port,
        is_up: false,
        link: found.link.unwrap_or(LinkLayer::Ethernet),
        lid: 0,
        gid: [0; 16],
        gid_index: 0,
        packet_bytes: found.packet_bytes,
        rate_mbps: found.rate_mbps,
        inline_bytes: depths.inline_bytes,
        message_bytes: message_bytes.into(),
        reads: found.reads,
        atomics: limits.atomic_cap != IBV_ATOMIC_NONE && found.reads != 0,
        depth: depths.sends,
        has_unreliable_reads: found.in_software,
        in_software: found.in_software,
        terms: *terms,
        partition: found.partition,
    };
    update(&mut facts, found);
    facts
}

/// Updates the attributes from a query. The port keeps its GID as long as the GID table contains it.
fn update(facts: &mut PortAttr, found: &DiscoveredPort) {
    facts.is_up = found.state == IBV_PORT_ACTIVE;
    if facts.is_up {
        // On Ethernet some drivers report a LID, which has no meaning.
        facts.lid = match facts.link {
            LinkLayer::Infiniband => found.lid,
            LinkLayer::Ethernet => 0,
        };
        facts.packet_bytes = found.packet_bytes;
        facts.rate_mbps = found.rate_mbps;
        facts.partition = found.partition;
    }
    let entries: Vec<_> = found
        .gids
        .all
        .iter()
        .map(|candidate| candidate.entry)
        .collect();
    let kept = gid::place_of(facts.gid, &entries).map(|place| (facts.gid, place));
    let chosen = found.gids.best().map(|best| {
        let place = u8::try_from(best.entry.index).unwrap_or(u8::MAX);
        (best.entry.gid, place)
    });
    let known = facts.gid != [0; 16];
    if let Some(now) = kept.filter(|_| known).or(chosen) {
        (facts.gid, facts.gid_index) = now;
    }
}

/// The bits `IBV_ACCESS_*` for a region.
fn access_bits(access: RegionAccess, atomics: bool) -> u32 {
    let atomic = if atomics { IBV_ACCESS_REMOTE_ATOMIC } else { 0 };
    match access {
        RegionAccess::Own => IBV_ACCESS_LOCAL_WRITE,
        RegionAccess::OwnRead => 0,
        RegionAccess::Read => IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ,
        RegionAccess::Full => {
            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | atomic
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::gid::{GidChoice, GidEntry, GidTable, GidType};
    use super::*;
    use verbs_sys::IBV_PORT_DOWN;

    fn found(state: u32, gids: &[(u32, u8)]) -> DiscoveredPort {
        let entry = |&(index, last): &(u32, u8)| GidEntry {
            index,
            gid: [0x20, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last],
            kind: GidType::RoceV2,
            interface: 0,
        };
        let entries: Vec<_> = gids.iter().map(entry).collect();
        let table = GidTable {
            link: LinkLayer::Ethernet,
            entries: &entries,
            interfaces: &[],
        };
        DiscoveredPort {
            device: "mlx5_0".into(),
            port: 1,
            link: Some(LinkLayer::Ethernet),
            state,
            lid: 0,
            packet_bytes: 4096,
            rate_mbps: 100_000,
            reads: 16,
            in_software: false,
            partition: 0,
            gids: GidChoice::make(table, HostRoute::Anywhere, None),
            unfit: None,
        }
    }

    /// The attributes of a port that was opened with the GID that ends with 1.
    fn opened() -> PortAttr {
        let mut facts = PortAttr {
            device: "mlx5_0".into(),
            port: 1,
            is_up: false,
            link: LinkLayer::Ethernet,
            lid: 0,
            gid: [0; 16],
            gid_index: 0,
            packet_bytes: 4096,
            rate_mbps: 100_000,
            inline_bytes: 64,
            message_bytes: 1 << 30,
            reads: 16,
            atomics: true,
            depth: 64,
            has_unreliable_reads: false,
            in_software: false,
            terms: NetTerms::DEFAULT,
            partition: 0,
        };
        update(&mut facts, &found(IBV_PORT_ACTIVE, &[(1, 1), (2, 2)]));
        facts
    }

    #[test]
    fn a_moved_gid_is_kept_and_a_removed_one_replaced() {
        let mut facts = opened();
        assert_eq!((facts.is_up, facts.gid[15], facts.gid_index), (true, 1, 1));
        update(&mut facts, &found(IBV_PORT_ACTIVE, &[(0, 2), (5, 1)]));
        assert_eq!((facts.gid[15], facts.gid_index), (1, 5));
        update(&mut facts, &found(IBV_PORT_ACTIVE, &[(0, 2)]));
        assert_eq!((facts.gid[15], facts.gid_index), (2, 0));
    }

    #[test]
    fn a_lid_on_ethernet_is_ignored() {
        let mut facts = opened();
        let mut found = found(IBV_PORT_ACTIVE, &[(1, 1)]);
        // The driver irdma reports such a LID.
        found.lid = 1;
        update(&mut facts, &found);
        assert_eq!(facts.lid, 0);
        facts.link = LinkLayer::Infiniband;
        update(&mut facts, &found);
        assert_eq!(facts.lid, 1);
    }

    #[test]
    fn a_port_that_is_down_keeps_its_attributes() {
        let mut facts = opened();
        let mut down = found(IBV_PORT_DOWN, &[]);
        down.packet_bytes = 256;
        update(&mut facts, &down);
        let mut wanted = opened();
        wanted.is_up = false;
        assert_eq!(facts, wanted);
    }

    #[test]
    fn access_flags_match_the_region_access() {
        let peers = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
        assert_eq!(access_bits(RegionAccess::OwnRead, true), 0);
        assert_eq!(access_bits(RegionAccess::Own, true) & peers, 0);
        let read = access_bits(RegionAccess::Read, true) & peers;
        assert_eq!(read, IBV_ACCESS_REMOTE_READ);
        assert_eq!(access_bits(RegionAccess::Full, true) & peers, peers);
        // A device without atomics would refuse the atomic bit.
        let without = access_bits(RegionAccess::Full, false) & peers;
        assert_eq!(without, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
    }
}
