// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calls of the provider's `VerbsPort`, passed on to the engine.
//!
//! # Safety
//! [`RocePort::register`](VerbsPort::register) passes the guarantee of its caller on to the table of regions unchanged.
//! The table is dropped with the port, so that no memory is accessed after the last chance to deregister it. A carrier
//! that sends from a region returns it before [`deregister`](VerbsPort::deregister) returns, or is dropped with the
//! port.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use dpdk_sys::InPlaceMemory;
use roce::{Config, Datagram, PathMtu, Psn};

use super::super::address::PortAddress;
use super::super::port::{
    AddressHandle, CallError, CqKind, DatagramDestination, PortAttr, PortCompletion, PortCounts,
    PortEvent, QueueFull, QueuePairHandle, Receives, Region, RegionAccess, RemotePair, Sge,
    VerbsPort, WorkBody, WorkOpcode, WorkRequest,
};
use super::carrier::Carrier;
use super::open::{partition, socket_of};
use super::{RocePort, piece};

impl<C: Carrier> VerbsPort for RocePort<C> {
    const CLOCK_EVERY: u64 = 32;
    const MAY_LOSE_COMPLETIONS: bool = false;
    const SERVES_IN_POLLS: bool = true;

    fn now_ns(&self) -> u64 {
        self.carrier.now_ns()
    }

    fn count_into(&mut self, counts: Arc<PortCounts>) {
        self.queues.pairs.count_into(Arc::clone(&counts));
        self.counts = counts;
    }

    fn facts(&self) -> &PortAttr {
        &self.facts
    }

    /// Nothing to query: the port's address is that of its socket, which does not change.
    fn refresh(&mut self) -> Result<(), CallError> {
        Ok(())
    }

    unsafe fn register(
        &mut self,
        base: NonNull<u8>,
        bytes: usize,
        access: RegionAccess,
    ) -> Result<Region, CallError> {
        if bytes == 0 {
            return Err(failed("ibv_reg_mr", libc::EINVAL));
        }
        let regions = &mut self.queues.regions;
        // SAFETY: the caller's guarantee lasts until `deregister` has returned or the port was dropped. `deregister`
        // removes the region; the table is dropped with the port.
        let key = unsafe { regions.add(base, bytes, access) };
        let key = key.ok_or_else(|| failed("ibv_reg_mr", libc::ENOMEM))?;
        // SAFETY: the caller's guarantee, as above. `deregister` takes the loan (recorded with the region) back from
        // the carrier before it returns; the carrier is dropped with the port.
        let lent = unsafe { InPlaceMemory::new(base, bytes) };
        if let Some(loan) = self.carrier.lend(lent) {
            regions.lend(key, loan);
        }
        self.counts.add(bytes as u64);
        Ok(Region {
            id: key,
            local_key: key,
            remote_key: key,
        })
    }

    fn deregister(&mut self, region: Region) {
        // The table entry is removed first, so that no further packet is sent from the region.
        let Some(removed) = self.queues.regions.remove(region.id) else {
            return;
        };
        if let Some(loan) = removed.loan {
            self.carrier.take_back(loan);
        }
        self.counts.take(removed.bytes);
    }

    fn post_receives(&mut self, queue: Receives, buffers: &[(u64, Sge)]) -> usize {
        let receives = match queue {
            Receives::Shared => &mut self.queues.shared,
            Receives::Datagrams => &mut self.queues.datagram_buffers,
        };
        let mut buffers = buffers.iter();
        let taken = buffers.by_ref();
        taken
            .take_while(|(name, buffer)| receives.post(*name, piece(*buffer)))
            .count()
    }

    fn datagram_number(&self) -> u32 {
        self.queues.datagrams.config().number
    }

    fn datagram_key(&self) -> u32 {
        self.queues.datagrams.config().key
    }

    fn create_address_handle(&mut self, to: &PortAddress) -> Result<AddressHandle, CallError> {
        let to = socket_of(to, self.queues.local);
        let to = to.ok_or_else(|| failed("ibv_create_ah", libc::EHOSTUNREACH))?;
        Ok(AddressHandle::at(self.handles.insert(to)))
    }

    fn destroy_address_handle(&mut self, handle: AddressHandle) {
        self.handles.remove(handle.place());
    }

    fn post_datagram(
        &mut self,
        to: DatagramDestination,
        work: u64,
        body: WorkBody<'_>,
        signaled: bool,
    ) -> Result<(), QueueFull> {
        let handle = *self.handles.get(to.handle.place()).ok_or(QueueFull)?;
        let posted = self.queues.datagrams.post(&Datagram {
            work,
            to: handle,
            number: to.number,
            key: to.key,
            body: body_of(body),
            immediate: None,
            signaled,
        });
        posted.map_err(|_| QueueFull)?;
        self.queues.has_datagrams = true;
        self.send_now();
        Ok(())
    }

    fn create(&mut self) -> Result<QueuePairHandle, CallError> {
        let number = self.queues.pairs.create();
        let number = number.ok_or_else(|| failed("ibv_create_qp", libc::ENOMEM))?;
        Ok(QueuePairHandle { id: number, number })
    }

    fn connect(&mut self, pair: QueuePairHandle, to: &RemotePair) -> Result<(), CallError> {
        let call = "ibv_modify_qp";
        let unreached = failed(call, libc::EHOSTUNREACH);
        let place = socket_of(&to.address, self.queues.local).ok_or(unreached)?;
        let packet_bytes = self.facts.packet_bytes.min(to.address.packet_bytes);
        let wrong = failed(call, libc::EINVAL);
        if to.sq_psn > Psn::MASK || to.rq_psn > Psn::MASK {
            return Err(wrong);
        }
        let terms = &self.facts.terms;
        let is_ours = to.address.is_program();
        let config = Config {
            sq_psn: Psn::new(to.sq_psn),
            rq_psn: Psn::new(to.rq_psn),
            path_mtu: PathMtu::new(packet_bytes).ok_or(wrong)?,
            partition: partition(terms),
            send_depth: self.limits.sends,
            window_packets: self.limits.window_packets,
            read_packets: self.limits.read_packets,
            initiator_depth: self.facts.reads,
            responder_depth: self.facts.reads,
            timeout: to.timeout_exp,
            retry_count: terms.retries,
            rnr_retry: terms.rnr_retry,
            min_rnr_timer: terms.min_rnr_timer(),
            peer_is_rmpi: is_ours,
            selective_repeat: is_ours,
            pads_responses: is_ours && C::SENDS_BATCHES && place.port() != roce::format::PORT,
            silence_ns: self.limits.silence_ns,
            ack_delay_ns: if is_ours { ACK_DELAY_NS } else { 0 },
            ..Config::new(pair.number, to.number, place)
        };
        self.queues.pairs.join(config).map_err(|_| wrong)
    }

    fn fail(&mut self, pair: QueuePairHandle) {
        self.queues.pairs.fail(pair.number);
        let ends = &mut self.queues.ends;
        self.queues.pairs.settle(pair.number, true, ends);
    }

    fn destroy(&mut self, pair: QueuePairHandle) {
        self.queues.pairs.destroy(pair.number);
        self.queues.ends.forget_sends(pair.number);
    }

    fn post(&mut self, pair: QueuePairHandle, requests: &[WorkRequest<'_>]) -> usize {
        let Some(engine) = self.queues.pairs.get(pair.number) else {
            return 0;
        };
        let posted = |request: &&WorkRequest<'_>| engine.post(&request_of(request)).is_ok();
        let count = requests.iter().take_while(posted).count();
        self.queues.pairs.posted(pair.number, &mut self.queues.ends);
        self.send_now();
        count
    }

    fn cork(&mut self) {
        self.is_corked = true;
    }

    #[inline(always)]
    fn uncork(&mut self) {
        let was_corked = std::mem::take(&mut self.is_corked);
        if was_corked && (self.queues.has_datagrams || self.queues.pairs.is_any_ready()) {
            self.send_now();
        }
    }

    fn poll(&mut self, which: CqKind, done: &mut [PortCompletion]) -> usize {
        let count = self.queues.take(which, done);
        let is_other = which == CqKind::Sends && std::mem::take(&mut self.has_turned);
        if count != 0 || is_other {
            return count;
        }
        self.turn();
        self.has_turned = which == CqKind::Receives;
        self.queues.take(which, done)
    }

    fn arm(&mut self) -> Result<(), CallError> {
        self.watch_new();
        let wanted = self.wanted(true);
        if let (Some(event), Some(packets)) =
            (&mut self.completion_event, self.carrier.descriptor())
        {
            let armed = event.arm(packets, wanted);
            armed.map_err(|error| {
                failed("timerfd_settime", error.raw_os_error().unwrap_or(libc::EIO))
            })?;
        }
        Ok(())
    }

    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        self.completion_event
            .as_ref()
            .map(super::CompletionEvent::as_fd)
    }

    fn take_activity(&mut self) -> bool {
        std::mem::take(&mut self.has_activity)
    }

    fn ack_events(&mut self) {
        if let (Some(event), Some(packets)) =
            (&mut self.completion_event, self.carrier.descriptor())
        {
            event.disarm(packets, self.carrier.now_ns());
        }
    }

    fn next_event(&mut self) -> Option<PortEvent> {
        self.queues.ends.next_event()
    }
}

fn request_of<'a>(request: &WorkRequest<'a>) -> roce::RoceRequest<'a> {
    roce::RoceRequest {
        work: request.work,
        operation: match request.operation {
            WorkOpcode::Send => roce::RequestOpcode::Send,
            WorkOpcode::Write { address, key } => roce::RequestOpcode::Write { address, key },
            WorkOpcode::Read { address, key } => roce::RequestOpcode::Read { address, key },
            WorkOpcode::FetchAdd { address, key, add } => {
                roce::RequestOpcode::FetchAdd { address, key, add }
            }
            WorkOpcode::CompareSwap {
                address,
                key,
                compare,
                swap,
            } => roce::RequestOpcode::CompareSwap {
                address,
                key,
                compare,
                swap,
            },
        },
        body: body_of(request.body),
        immediate: None,
        signaled: request.signaled,
    }
}

fn body_of(body: WorkBody<'_>) -> roce::RequestBody<'_> {
    match body {
        WorkBody::Inline(bytes) => roce::RequestBody::Inline(bytes),
        WorkBody::Piece(of) => roce::RequestBody::Sge(piece(of)),
    }
}

/// How long an acknowledgement waits for a packet to carry it.
const ACK_DELAY_NS: u64 = 1_000_000;

fn failed(call: &'static str, errno: i32) -> CallError {
    CallError { call, errno }
}
