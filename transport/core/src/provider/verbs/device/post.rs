// SPDX-License-Identifier: MIT OR Apache-2.0
//! Posts lists of work requests, built on the stack, with one doorbell for each list.
//!
//! # Safety
//! The library reads a list and its scatter-gather entries before a call returns. For the memory that the entries name
//! see D2 of `device.rs`.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;

use verbs_sys::{
    IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD,
    IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_SEND, ibv_ah, ibv_recv_wr, ibv_send_wr,
    ibv_send_wr_atomic, ibv_send_wr_op, ibv_send_wr_rdma, ibv_send_wr_ud, ibv_sge, inline,
};

use super::super::port::{
    CqKind, DatagramDestination, QueueFull, QueuePairHandle, Receives, Sge, WorkBody, WorkOpcode,
    WorkRequest,
};
use super::datagrams::{MARK, Mark};
use super::{DeviceRegion, VerbsDevice};

/// Maximum number of work requests in one list, and of completions polled in one call.
pub(super) const BATCH: usize = 16;

impl VerbsDevice {
    #[inline]
    pub(super) fn post_requests(
        &mut self,
        pair: QueuePairHandle,
        requests: &[WorkRequest<'_>],
    ) -> usize {
        if let [request] = requests {
            return usize::from(self.is_good(request) && self.post_request(pair, request));
        }
        let mut taken = 0;
        for batch in requests.chunks(BATCH) {
            // A request that no device supports is refused, and so are those behind it.
            let good = batch.iter().take_while(|request| self.is_good(request));
            let good = good.count();
            let count = self.post_batch(pair, &batch[..good]);
            taken += count;
            if count < batch.len() {
                break;
            }
        }
        taken
    }

    fn is_good(&self, request: &WorkRequest<'_>) -> bool {
        let good = match (request.operation, request.body) {
            (WorkOpcode::Send | WorkOpcode::Write { .. }, WorkBody::Inline(bytes)) => {
                bytes.len() <= self.facts.inline_bytes as usize
            }
            (_, WorkBody::Inline(_)) => false,
            (
                WorkOpcode::FetchAdd { address, .. } | WorkOpcode::CompareSwap { address, .. },
                WorkBody::Piece(piece),
            ) => address.is_multiple_of(8) && piece.address.is_multiple_of(8) && piece.bytes == 8,
            (_, WorkBody::Piece(_)) => true,
        };
        debug_assert!(good, "no device does that: {request:?}");
        good
    }

    /// Posts a single request, without setting up a list.
    #[inline]
    fn post_request(&self, pair: QueuePairHandle, request: &WorkRequest<'_>) -> bool {
        let Some(found) = self.pair(pair) else {
            return false;
        };
        let mut piece = ibv_sge::default();
        let flags = put(&mut piece, request.body) | signaled(request.signaled);
        let mut posted = ibv_send_wr {
            wr_id: request.work,
            next: ptr::null_mut(),
            sg_list: &raw mut piece,
            num_sge: 1,
            opcode: opcode(request.operation),
            send_flags: flags,
            imm_data: 0,
            wr: handle(request.operation),
            others: [0; 7],
        };
        let mut bad = ptr::null_mut();
        // SAFETY: a live queue pair; a list of one, whose entry and inline body are valid for the call; for registered
        // memory see D2.
        let answer = unsafe { inline::post_send(found.as_ptr(), &raw mut posted, &mut bad) };
        answer == 0
    }

    /// Posts a single send with an inline body, without setting up a list.
    #[inline(always)]
    pub(super) fn send_inline(
        &mut self,
        pair: QueuePairHandle,
        work: u64,
        body: &[u8],
        is_signaled: bool,
    ) -> bool {
        debug_assert!(body.len() <= self.facts.inline_bytes as usize);
        let Some(found) = self.pair(pair) else {
            return false;
        };
        #[allow(clippy::cast_possible_truncation, reason = "a packet")]
        let mut piece = ibv_sge {
            addr: body.as_ptr().expose_provenance() as u64,
            length: body.len() as u32,
            lkey: 0,
        };
        let mut posted = ibv_send_wr {
            wr_id: work,
            next: ptr::null_mut(),
            sg_list: &raw mut piece,
            num_sge: 1,
            opcode: IBV_WR_SEND,
            send_flags: IBV_SEND_INLINE | signaled(is_signaled),
            imm_data: 0,
            wr: handle(WorkOpcode::Send),
            others: [0; 7],
        };
        let mut bad = ptr::null_mut();
        // SAFETY: a live queue pair; a list of one, whose entry and body are valid for the call; for registered memory
        // see D2.
        let answer = unsafe { inline::post_send(found.as_ptr(), &raw mut posted, &mut bad) };
        answer == 0
    }

    /// Posts a list of at most [`BATCH`] requests.
    #[inline]
    fn post_batch(&self, pair: QueuePairHandle, batch: &[WorkRequest<'_>]) -> usize {
        let Some(found) = self.pair(pair) else {
            return 0;
        };
        let mut list = [const { MaybeUninit::<ibv_send_wr>::uninit() }; BATCH];
        let mut pieces = [ibv_sge::default(); BATCH];
        let mut next = ptr::null_mut();
        let places = list.iter_mut().zip(&mut pieces);
        for ((place, piece), request) in places.zip(batch).rev() {
            let inline_flag = put(piece, request.body);
            place.write(ibv_send_wr {
                wr_id: request.work,
                next,
                sg_list: piece,
                num_sge: 1,
                opcode: opcode(request.operation),
                send_flags: inline_flag | signaled(request.signaled),
                imm_data: 0,
                wr: handle(request.operation),
                others: [0; 7],
            });
            next = place.as_mut_ptr();
        }
        if next.is_null() {
            return 0;
        }
        let mut bad = ptr::null_mut();
        // SAFETY: a live queue pair; a terminated list, whose entries and inline bodies are valid for the call; for
        // registered memory see D2.
        let answer = unsafe { inline::post_send(found.as_ptr(), next, &mut bad) };
        taken(answer, next.addr(), bad.addr(), size_of::<ibv_send_wr>()).unwrap_or(batch.len())
    }

    #[inline]
    pub(super) fn send_datagram(
        &mut self,
        to: DatagramDestination,
        work: u64,
        body: WorkBody<'_>,
        is_signaled: bool,
    ) -> Result<(), QueueFull> {
        let handle = self.handles.get(to.handle.place()).ok_or(QueueFull)?;
        let (bytes, most) = match body {
            WorkBody::Inline(bytes) => (bytes.len(), self.facts.inline_bytes),
            WorkBody::Piece(piece) => (piece.bytes as usize, self.facts.packet_bytes),
        };
        debug_assert!(bytes <= most as usize, "{bytes} bytes, at most {most}");
        if bytes > most as usize {
            return Err(QueueFull);
        }
        let handle = handle.as_ptr();
        if self.is_late(work) {
            return Ok(());
        }
        let mut piece = ibv_sge::default();
        let flags = put(&mut piece, body) | signaled(is_signaled);
        match self.post_alone(handle, (to.number, to.key), work, Some(&mut piece), flags) {
            0 => Ok(()),
            _ => Err(QueueFull),
        }
    }

    /// Posts one datagram, with or without a body.
    #[inline(always)]
    fn post_alone(
        &self,
        handle: *mut ibv_ah,
        (number, key): (u32, u32),
        work: u64,
        piece: Option<&mut ibv_sge>,
        flags: u32,
    ) -> c_int {
        let mut request = ibv_send_wr {
            wr_id: work,
            next: ptr::null_mut(),
            num_sge: piece.is_some().into(),
            sg_list: piece.map_or(ptr::null_mut(), ptr::from_mut),
            opcode: IBV_WR_SEND,
            send_flags: flags,
            imm_data: 0,
            wr: ibv_send_wr_op {
                ud: ibv_send_wr_ud {
                    ah: handle,
                    remote_qpn: number,
                    remote_qkey: key,
                },
            },
            others: [0; 7],
        };
        let mut bad = ptr::null_mut();
        // SAFETY: a live queue pair and address handle; a list of one, whose entry and inline body are valid for the
        // call; for registered memory see D2.
        unsafe { inline::post_send(self.datagrams.as_ptr(), &raw mut request, &mut bad) }
    }

    /// Posts a mark behind everything that was posted to one of the two queues of the datagram queue pair.
    #[cold]
    pub(super) fn post_mark(&mut self, which: CqKind) -> Mark {
        let answer = match which {
            CqKind::Sends => {
                // An address handle exists as long as a datagram to it is in flight: without any handle, no datagram is
                // in flight.
                let Some(handle) = self.handles.iter_mut().next().map(|handle| handle.as_ptr())
                else {
                    return Mark::Back;
                };
                let own = (self.datagram_number, self.q_key);
                self.post_alone(handle, own, MARK, None, IBV_SEND_SIGNALED)
            }
            CqKind::Receives => {
                let mut request = ibv_recv_wr {
                    wr_id: MARK,
                    next: ptr::null_mut(),
                    sg_list: ptr::null_mut(),
                    num_sge: 0,
                };
                let mut bad = ptr::null_mut();
                // SAFETY: a live queue pair; a list of one, without an entry.
                unsafe { inline::post_recv(self.datagrams.as_ptr(), &raw mut request, &mut bad) }
            }
        };
        // A failed post means that the queue has no room yet.
        if answer == 0 {
            Mark::Posted
        } else {
            Mark::Wanted
        }
    }

    pub(super) fn post_buffers(&mut self, queue: Receives, buffers: &[(u64, Sge)]) -> usize {
        if queue == Receives::Datagrams && self.are_late(buffers) {
            return buffers.len();
        }
        let mut taken = 0;
        for batch in buffers.chunks(BATCH) {
            // Only buffers in registered memory are posted (D2).
            let good = batch.iter().take_while(|(_, piece)| self.lend(*piece));
            let good = good.count();
            debug_assert_eq!(
                good,
                batch.len(),
                "{:x?} is no registered memory",
                batch[good]
            );
            let count = self.post_buffer_batch(queue, &batch[..good]);
            taken += count;
            if count < batch.len() {
                break;
            }
        }
        taken
    }

    /// Whether a receive buffer is in a region of this process; marks the region as one with receive buffers.
    fn lend(&mut self, piece: Sge) -> bool {
        let holds = |held: &&mut DeviceRegion| {
            let offset = piece.address.checked_sub(held.first);
            let end = offset.and_then(|offset| offset.checked_add(piece.bytes.into()));
            held.local_key == piece.local_key && end.is_some_and(|end| end <= held.bytes)
        };
        let Some(held) = self.regions.iter_mut().find(holds) else {
            return false;
        };
        held.receives = true;
        true
    }

    /// Posts a list of at most [`BATCH`] buffers.
    fn post_buffer_batch(&self, queue: Receives, batch: &[(u64, Sge)]) -> usize {
        let mut list = [const { MaybeUninit::<ibv_recv_wr>::uninit() }; BATCH];
        let mut pieces = [ibv_sge::default(); BATCH];
        let mut next = ptr::null_mut();
        let places = list.iter_mut().zip(&mut pieces);
        for ((place, piece), (work, buffer)) in places.zip(batch).rev() {
            put(piece, WorkBody::Piece(*buffer));
            place.write(ibv_recv_wr {
                wr_id: *work,
                next,
                sg_list: piece,
                num_sge: 1,
            });
            next = place.as_mut_ptr();
        }
        if next.is_null() {
            return 0;
        }
        let mut bad = ptr::null_mut();
        let answer = match queue {
            // SAFETY: a live queue; a terminated list, whose entries are valid for the call; the buffers are lent (D2).
            Receives::Shared => unsafe {
                inline::post_srq_recv(self.shared.as_ptr(), next, &mut bad)
            },
            // SAFETY: as above.
            Receives::Datagrams => unsafe {
                inline::post_recv(self.datagrams.as_ptr(), next, &mut bad)
            },
        };
        taken(answer, next.addr(), bad.addr(), size_of::<ibv_recv_wr>()).unwrap_or(batch.len())
    }
}

/// Writes the scatter-gather entry of a body; returns `IBV_SEND_INLINE` for an inline body, otherwise 0.
#[inline(always)]
fn put(piece: &mut ibv_sge, body: WorkBody<'_>) -> u32 {
    match body {
        WorkBody::Inline(bytes) => {
            piece.addr = bytes.as_ptr().expose_provenance() as u64;
            // Longer bodies were refused before.
            piece.length = u32::try_from(bytes.len()).unwrap_or(0);
            IBV_SEND_INLINE
        }
        WorkBody::Piece(lent) => {
            *piece = ibv_sge {
                addr: lent.address,
                length: lent.bytes,
                lkey: lent.local_key,
            };
            0
        }
    }
}

#[inline(always)]
fn signaled(is_signaled: bool) -> u32 {
    if is_signaled { IBV_SEND_SIGNALED } else { 0 }
}

#[inline(always)]
fn opcode(operation: WorkOpcode) -> u32 {
    match operation {
        WorkOpcode::Send => IBV_WR_SEND,
        WorkOpcode::Write { .. } => IBV_WR_RDMA_WRITE,
        WorkOpcode::Read { .. } => IBV_WR_RDMA_READ,
        WorkOpcode::FetchAdd { .. } => IBV_WR_ATOMIC_FETCH_AND_ADD,
        WorkOpcode::CompareSwap { .. } => IBV_WR_ATOMIC_CMP_AND_SWP,
    }
}

/// The part of a request that depends on its opcode.
#[inline(always)]
fn handle(operation: WorkOpcode) -> ibv_send_wr_op {
    let rdma = |remote_addr, rkey| ibv_send_wr_op {
        rdma: ibv_send_wr_rdma { remote_addr, rkey },
    };
    let atomic = |remote_addr, rkey, compare_add, swap| ibv_send_wr_op {
        atomic: ibv_send_wr_atomic {
            remote_addr,
            compare_add,
            swap,
            rkey,
        },
    };
    match operation {
        WorkOpcode::Send => rdma(0, 0),
        WorkOpcode::Write { address, key } | WorkOpcode::Read { address, key } => {
            rdma(address, key)
        }
        WorkOpcode::FetchAdd { address, key, add } => atomic(address, key, add, 0),
        WorkOpcode::CompareSwap {
            address,
            key,
            compare,
            swap,
        } => atomic(address, key, compare, swap),
    }
}

/// How many requests of a list were taken; `None`: all. `first` and `bad` are the addresses of the first request of the
/// list and of the first request that was not taken, both in one array.
#[inline(always)]
fn taken(answer: c_int, first: usize, bad: usize, size: usize) -> Option<usize> {
    if answer == 0 {
        return None;
    }
    // If the device does not report which request it refused, it has taken none.
    Some(bad.checked_sub(first).map_or(0, |bytes| bytes / size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_wr_gives_the_number_of_accepted_requests() {
        let size = size_of::<ibv_send_wr>();
        assert_eq!(taken(0, 4096, 0, size), None);
        assert_eq!(taken(libc::ENOMEM, 4096, 4096, size), Some(0));
        assert_eq!(taken(-libc::ENOMEM, 4096, 4096 + 3 * size, size), Some(3));
        assert_eq!(taken(libc::EINVAL, 4096, 0, size), Some(0));
    }

    #[test]
    fn send_bodies_are_inline_or_in_registered_memory() {
        let mut piece = ibv_sge::default();
        let bytes = [1u8, 2, 3];
        assert_eq!(put(&mut piece, WorkBody::Inline(&bytes)), IBV_SEND_INLINE);
        assert_eq!((piece.addr, piece.length), (bytes.as_ptr() as u64, 3));
        let lent = Sge {
            address: 64,
            bytes: 9,
            local_key: 5,
        };
        assert_eq!(put(&mut piece, WorkBody::Piece(lent)), 0);
        assert_eq!((piece.addr, piece.length, piece.lkey), (64, 9, 5));
    }
}
