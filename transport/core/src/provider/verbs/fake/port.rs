// SPDX-License-Identifier: MIT OR Apache-2.0
//! One port of the simulated network: the calls of its process.
//!
//! # Safety
//! [`FakePort::register`] passes the guarantee of its caller on to the table of regions unchanged. When the port is
//! dropped all its regions are removed from the table, so that no memory is accessed after the last chance to
//! deregister it.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use super::super::NetTerms;
use super::super::address::PortAddress;
use super::super::port::{
    AddressHandle, CallError, CqKind, DatagramDestination, Depths, PortAttr, PortCompletion,
    PortCounts, PortEvent, QueueFull, QueuePairHandle, Receives, Region, RegionAccess, RemotePair,
    Sge, VerbsPort, WorkBody, WorkRequest,
};
use super::FakeNet;
use super::adapter::FakeSource;

/// One port of a simulated network. Dropping it ends its process.
#[derive(Debug)]
pub(crate) struct FakePort {
    net: FakeNet,
    index: u32,
    /// The attributes of the last query.
    facts: PortAttr,
    counts: Arc<PortCounts>,
}

impl FakeNet {
    /// Opens a port with an address of its own.
    ///
    /// # Errors
    /// Depths that no device supports, or a Q_Key with its highest bit set.
    #[cfg(test)]
    pub(crate) fn open(&self, depths: &Depths, q_key: u32) -> Result<FakePort, CallError> {
        self.open_beside(None, depths, &NetTerms::DEFAULT, q_key)
    }

    /// Opens a port for the process that has opened port `first`, or for a new one.
    pub(crate) fn open_beside(
        &self,
        first: Option<u32>,
        depths: &Depths,
        terms: &NetTerms,
        q_key: u32,
    ) -> Result<FakePort, CallError> {
        let mut net = self.lock();
        let index = net.open(depths, terms, q_key, first)?;
        let facts = net.port(index).facts.clone();
        let net = self.clone();
        Ok(FakePort {
            net,
            index,
            facts,
            counts: Arc::default(),
        })
    }
}

#[allow(
    dead_code,
    reason = "what tests ask, and whoever moves the network's clock; no provider needs all of it"
)]
impl FakePort {
    /// The number of this port on the network: ports are numbered from 0 as they are opened.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Puts the process to sleep until an event, or for `due` of simulated time. `or_longer`: the process has no
    /// deadline of its own.
    pub(in super::super) fn fall_asleep(&self, due: Duration, or_longer: bool) {
        let due_ns = u64::try_from(due.as_nanos()).unwrap_or(u64::MAX);
        let mut net = self.net.lock();
        let until = net.now.saturating_add(due_ns);
        net.port(self.index).fall_asleep(until, or_longer);
    }

    /// Whether a port of the process has an event that the process has not acknowledged; such an event wakes the
    /// process if it sleeps.
    pub(crate) fn would_wake(&self) -> bool {
        self.net.would_wake(self.index)
    }
}

impl Drop for FakePort {
    fn drop(&mut self) {
        self.net.lock().end_process(self.index);
    }
}

impl VerbsPort for FakePort {
    const CLOCK_EVERY: u64 = 1;

    /// Simulated time.
    fn now_ns(&self) -> u64 {
        self.net.now_ns()
    }

    fn count_into(&mut self, counts: Arc<PortCounts>) {
        self.counts = counts;
    }

    fn facts(&self) -> &PortAttr {
        &self.facts
    }

    fn refresh(&mut self) -> Result<(), CallError> {
        let mut net = self.net.lock();
        let adapter = net.port(self.index);
        adapter.alive("ibv_query_port")?;
        self.facts = adapter.facts.clone();
        Ok(())
    }

    unsafe fn register(
        &mut self,
        base: NonNull<u8>,
        bytes: usize,
        access: RegionAccess,
    ) -> Result<Region, CallError> {
        let mut net = self.net.lock();
        net.may_register(self.index, bytes as u64)?;
        let region = Region {
            id: net.new_key(),
            local_key: net.new_key(),
            remote_key: net.new_key(),
        };
        let adapter = net.port(self.index);
        adapter.stats.registered += 1;
        // SAFETY: the caller's guarantee lasts until `deregister` has returned or the port is dropped. `deregister`
        // removes the region; all regions are cleared when the port is dropped or its process is killed.
        unsafe { adapter.regions.add(base, bytes, access, region) };
        self.counts.add(bytes as u64);
        Ok(region)
    }

    fn deregister(&mut self, region: Region) {
        let mut net = self.net.lock();
        let adapter = net.port(self.index);
        let before = adapter.regions.bytes();
        let found = adapter.regions.remove(region);
        self.counts.take(before - adapter.regions.bytes());
        adapter.stats.wrong += u64::from(!found && !adapter.has_ended());
    }

    fn post_receives(&mut self, queue: Receives, buffers: &[(u64, Sge)]) -> usize {
        self.net.lock().post_receives(self.index, queue, buffers)
    }

    fn datagram_number(&self) -> u32 {
        self.net.lock().port(self.index).datagrams.number
    }

    fn datagram_key(&self) -> u32 {
        self.net.lock().port(self.index).q_key
    }

    fn create_address_handle(&mut self, to: &PortAddress) -> Result<AddressHandle, CallError> {
        let known = FakeSource::of(&self.facts);
        self.net.lock().create_address_handle(self.index, known, to)
    }

    fn destroy_address_handle(&mut self, handle: AddressHandle) {
        self.net.lock().destroy_address_handle(self.index, handle);
    }

    fn post_datagram(
        &mut self,
        to: DatagramDestination,
        work: u64,
        body: WorkBody<'_>,
        signaled: bool,
    ) -> Result<(), QueueFull> {
        let mut net = self.net.lock();
        net.post_datagram(self.index, to, work, body, signaled)
    }

    fn create(&mut self) -> Result<QueuePairHandle, CallError> {
        self.net.lock().create(self.index)
    }

    fn connect(&mut self, pair: QueuePairHandle, to: &RemotePair) -> Result<(), CallError> {
        let known = FakeSource::of(&self.facts);
        self.net.lock().connect(self.index, pair, known, to)
    }

    fn fail(&mut self, pair: QueuePairHandle) {
        self.net.lock().fail(self.index, pair);
    }

    fn destroy(&mut self, pair: QueuePairHandle) {
        self.net.lock().destroy(self.index, pair);
    }

    fn post(&mut self, pair: QueuePairHandle, requests: &[WorkRequest<'_>]) -> usize {
        self.net.lock().post(self.index, pair, requests)
    }

    fn poll(&mut self, which: CqKind, done: &mut [PortCompletion]) -> usize {
        let mut net = self.net.lock();
        let mut count = 0;
        for place in done {
            let Some(entry) = net.poll_one(self.index, which) else {
                break;
            };
            *place = entry.done;
            count += 1;
        }
        count
    }

    fn arm(&mut self) -> Result<(), CallError> {
        let mut net = self.net.lock();
        let adapter = net.port(self.index);
        adapter.alive("ibv_req_notify_cq")?;
        adapter.arm();
        Ok(())
    }

    /// There is no descriptor: the time of this network is simulated.
    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn ack_events(&mut self) {
        self.net.lock().port(self.index).ack_events();
    }

    fn next_event(&mut self) -> Option<PortEvent> {
        let mut net = self.net.lock();
        let now = net.now;
        let adapter = net.port(self.index);
        match adapter.runs(now) {
            true => adapter.events.pop_front(),
            false => None,
        }
    }
}
