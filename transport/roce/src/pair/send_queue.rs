// SPDX-License-Identifier: MIT OR Apache-2.0
//! The queue of posted work requests that have not completed, with their PSNs.

use std::collections::VecDeque;

use super::config::{Config, PathMtu};
use super::request::{MESSAGE_BYTES_MAX, PostError, RequestBody, RequestOpcode, RoceRequest};
use crate::memory::RoceSge;
use crate::psn::Psn;

/// The send queue of a queue pair, oldest request first.
#[derive(Debug)]
pub(super) struct SendQueue {
    works: VecDeque<SendQueueEntry>,
    /// PSN of the first packet of the next request.
    next: Psn,
    depth: usize,
    mtu: PathMtu,
}

/// A work request that has not completed.
#[derive(Debug)]
pub(super) struct SendQueueEntry {
    pub(super) work: u64,
    pub(super) operation: RequestOpcode,
    pub(super) body: SendQueueBody,
    pub(super) immediate: Option<[u8; 4]>,
    pub(super) signaled: bool,
    /// PSN of the first packet of the request. The PSNs of a read are those of its response packets.
    pub(super) first: Psn,
    pub(super) packets: u32,
}

/// The body of a work request that has not completed.
#[derive(Debug)]
pub(super) enum SendQueueBody {
    /// A short inline body, which needs no allocation.
    Short {
        bytes: [u8; SHORT_BYTES],
        len: u8,
    },
    Inline(Box<[u8]>),
    Sge(RoceSge),
}

impl SendQueue {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            works: VecDeque::new(),
            next: config.sq_psn,
            depth: usize::try_from(config.send_depth).unwrap_or(usize::MAX),
            mtu: config.path_mtu,
        }
    }

    /// Posts a request. `unpolled`: the number of unpolled completions, which count against the depth too.
    pub(super) fn push(
        &mut self,
        request: &RoceRequest<'_>,
        unpolled: usize,
    ) -> Result<(), PostError> {
        let body = copy_body(request)?;
        let packets = self.mtu.packets(body.bytes());
        let first = self.works.front().map_or(self.next, |work| work.first);
        let numbers = self.next.packets_since(first) + packets;
        if self.works.len() + unpolled >= self.depth || numbers > NUMBERS_MAX {
            return Err(PostError::Full);
        }
        let takes_immediate = matches!(
            request.operation,
            RequestOpcode::Send | RequestOpcode::Write { .. }
        );
        self.works.push_back(SendQueueEntry {
            work: request.work,
            operation: request.operation,
            body,
            immediate: request.immediate.filter(|_| takes_immediate),
            signaled: request.signaled,
            first: self.next,
            packets,
        });
        self.next = self.next.plus(packets);
        Ok(())
    }

    pub(super) fn oldest(&self) -> Option<&SendQueueEntry> {
        self.works.front()
    }

    pub(super) fn get(&self, index: usize) -> Option<&SendQueueEntry> {
        self.works.get(index)
    }

    /// The index of the request that contains this PSN, and the number of the request's packets before the PSN.
    pub(super) fn find(&self, psn: Psn) -> Option<(usize, u32)> {
        let first = self.works.front()?.first;
        let distance = psn.packets_since(first);
        let starts_by = |work: &SendQueueEntry| work.first.packets_since(first) <= distance;
        let index = self.works.partition_point(starts_by).checked_sub(1)?;
        let work = self.works.get(index)?;
        let packet = psn.packets_since(work.first);
        (packet < work.packets).then_some((index, packet))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &SendQueueEntry> {
        self.works.iter()
    }

    pub(super) fn pop(&mut self) -> Option<SendQueueEntry> {
        self.works.pop_front()
    }
}

impl SendQueueEntry {
    /// Whether the request is a read or an atomic operation, whose response carries data. Such a request is not
    /// completed by the acknowledgement of a later packet.
    pub(super) fn fetches(&self) -> bool {
        !matches!(
            self.operation,
            RequestOpcode::Send | RequestOpcode::Write { .. }
        )
    }

    pub(super) fn is_read(&self) -> bool {
        matches!(self.operation, RequestOpcode::Read { .. })
    }

    /// The PSN behind the last packet of the request.
    pub(super) fn end(&self) -> Psn {
        self.first.plus(self.packets)
    }
}

impl SendQueueBody {
    fn inline(body: &[u8]) -> Self {
        let mut bytes = [0; SHORT_BYTES];
        match (bytes.get_mut(..body.len()), u8::try_from(body.len())) {
            (Some(place), Ok(len)) => {
                place.copy_from_slice(body);
                Self::Short { bytes, len }
            }
            _ => Self::Inline(body.into()),
        }
    }

    /// The inline bytes; empty if the body is registered memory.
    pub(super) fn copied(&self) -> &[u8] {
        match self {
            Self::Short { bytes, len } => &bytes[..usize::from(*len)],
            Self::Inline(bytes) => bytes,
            Self::Sge(_) => &[],
        }
    }

    pub(super) fn bytes(&self) -> u32 {
        match self {
            Self::Short { len, .. } => u32::from(*len),
            Self::Inline(bytes) => u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            Self::Sge(sge) => sge.bytes,
        }
    }
}

/// Checks a request and copies its body.
fn copy_body(request: &RoceRequest<'_>) -> Result<SendQueueBody, PostError> {
    let bytes = match request.body {
        RequestBody::Inline(bytes) => bytes.len(),
        RequestBody::Sge(sge) => usize::try_from(sge.bytes).unwrap_or(usize::MAX),
    };
    let most = MESSAGE_BYTES_MAX;
    if u32::try_from(bytes).is_ok_and(|bytes| bytes > most) || bytes > u32::MAX as usize {
        return Err(PostError::TooLong { bytes, most });
    }
    if let RequestOpcode::FetchAdd { address, .. } | RequestOpcode::CompareSwap { address, .. } =
        request.operation
    {
        if address % 8 != 0 {
            return Err(PostError::AtomicAddress { address });
        }
        if bytes != 8 {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            return Err(PostError::AtomicBytes { bytes });
        }
    }
    match (request.body, request.operation) {
        (RequestBody::Sge(sge), _) => Ok(SendQueueBody::Sge(sge)),
        (RequestBody::Inline(bytes), RequestOpcode::Send | RequestOpcode::Write { .. }) => {
            Ok(SendQueueBody::inline(bytes))
        }
        (RequestBody::Inline(_), _) => Err(PostError::Inline),
    }
}

/// Largest inline body that is stored without an allocation, in bytes.
const SHORT_BYTES: usize = 64;
/// Largest number of PSNs of all requests that have not completed: a quarter of all PSNs, so that their order is
/// unambiguous.
const NUMBERS_MAX: u32 = 1 << 22;
const _: () = assert!(MESSAGE_BYTES_MAX / 256 <= NUMBERS_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(depth: u32) -> SendQueue {
        SendQueue::new(&Config {
            send_depth: depth,
            path_mtu: PathMtu::BYTES_256,
            sq_psn: Psn::new(0x00ff_fffe),
            ..Config::new(1, 2, "10.0.0.1:4791".parse().unwrap())
        })
    }

    fn request(operation: RequestOpcode, bytes: u32) -> RoceRequest<'static> {
        RoceRequest {
            work: 0,
            operation,
            body: RequestBody::Sge(RoceSge {
                bytes,
                ..RoceSge::default()
            }),
            immediate: None,
            signaled: true,
        }
    }

    const READ: RequestOpcode = RequestOpcode::Read { address: 0, key: 0 };
    const ADD: RequestOpcode = RequestOpcode::FetchAdd {
        address: 8,
        key: 0,
        add: 1,
    };

    #[test]
    fn s9_7_a_read_takes_the_psns_of_its_responses() {
        let mut queue = queue(8);
        for (operation, bytes) in [(READ, 600), (RequestOpcode::Send, 0), (ADD, 8)] {
            queue.push(&request(operation, bytes), 0).unwrap();
        }
        let firsts: Vec<u32> = queue.iter().map(|work| work.first.get()).collect();
        assert_eq!(firsts, [0x00ff_fffe, 1, 2]);
        assert_eq!(queue.next.get(), 3);
    }

    #[test]
    fn request_is_found_by_any_of_its_psns() {
        let mut queue = queue(8);
        for (operation, bytes) in [(READ, 600), (RequestOpcode::Send, 0), (ADD, 8)] {
            queue.push(&request(operation, bytes), 0).unwrap();
        }
        let finds = |psn| queue.find(Psn::new(psn));
        assert_eq!(finds(0x00ff_fffe), Some((0, 0)));
        assert_eq!(finds(0), Some((0, 2)));
        assert_eq!((finds(1), finds(2)), (Some((1, 0)), Some((2, 0))));
        assert_eq!((finds(3), finds(0x00ff_fffd)), (None, None));
    }

    #[test]
    fn full_send_queue_rejects_requests() {
        let mut queue = queue(2);
        let send = request(RequestOpcode::Send, 1);
        assert_eq!(queue.push(&send, 0), Ok(()));
        assert_eq!(queue.push(&send, 1), Err(PostError::Full));
        assert_eq!(queue.push(&send, 0), Ok(()));
        assert_eq!(queue.push(&send, 0), Err(PostError::Full));
    }

    #[test]
    fn outstanding_psns_stay_within_a_quarter_of_the_range() {
        let mut queue = queue(8);
        queue.push(&request(READ, MESSAGE_BYTES_MAX), 0).unwrap();
        let more = queue.push(&request(RequestOpcode::Send, 0), 0);
        assert_eq!(more, Err(PostError::Full));
    }

    #[test]
    fn inline_bodies_of_any_length_are_kept() {
        for len in [0, 1, SHORT_BYTES, SHORT_BYTES + 1, 1000] {
            let body = vec![7; len];
            let kept = SendQueueBody::inline(&body);
            assert_eq!(kept.copied(), body);
            assert_eq!(usize::try_from(kept.bytes()), Ok(len));
        }
    }

    #[test]
    fn invalid_requests_are_refused() {
        let mut queue = queue(8);
        let mut refuses = |request: &RoceRequest<'_>| queue.push(request, 0).unwrap_err();
        let long = request(RequestOpcode::Send, MESSAGE_BYTES_MAX + 1);
        assert!(matches!(refuses(&long), PostError::TooLong { .. }));
        let wide = PostError::AtomicBytes { bytes: 4 };
        assert_eq!(refuses(&request(ADD, 4)), wide);
        let address = 12;
        let unaligned = RequestOpcode::FetchAdd {
            address,
            key: 0,
            add: 1,
        };
        let error = PostError::AtomicAddress { address };
        assert_eq!(refuses(&request(unaligned, 8)), error);
        let inline = RoceRequest {
            body: RequestBody::Inline(&[0; 8]),
            ..request(READ, 0)
        };
        assert_eq!(refuses(&inline), PostError::Inline);
    }
}
