// SPDX-License-Identifier: MIT OR Apache-2.0
//! The records that the ranks make while they run, and the rules by which these records are checked afterwards.

use std::collections::HashMap;

use crate::memory::Buffer;
use crate::plan::{Plan, Receive};
use crate::random::content;

/// The operations of one rank.
#[derive(Debug, Default)]
pub struct Log {
    /// Messages in the order in which they were sent, without those that were cancelled successfully.
    pub sent: Vec<usize>,
    /// Receives in the order in which they were posted; a receive of a claimed message, in the order of the claims.
    pub received: Vec<Received>,
    /// Buffers of operations that are not waited for. They stay allocated until the end of the program.
    pub kept: Vec<Buffer>,
}

/// One receive.
#[derive(Debug)]
pub struct Received {
    pub comm: usize,
    /// World rank; `None`: any source.
    pub source: Option<u32>,
    pub tag: Option<i32>,
    /// The received bytes. `None` while a persistent receive is in progress: its buffer belongs to the request.
    pub buffer: Option<Buffer>,
    pub end: End,
    /// The result of a probe for the message: source (world rank), tag, and number of bytes.
    pub found: Option<(u32, i32, u64)>,
}

/// Outcome of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Open,
    Cancelled,
    /// The request was freed, so there is no status. The order of sends and receives determines which message was
    /// received.
    Freed,
    Got {
        /// Rank of the sender in the communicator.
        source: i32,
        tag: i32,
        bytes: u64,
        /// Number of bytes of the message, if it was longer than the buffer.
        truncated: Option<u64>,
    },
}

impl Received {
    pub fn new(receive: &Receive, buffer: Option<Buffer>) -> Self {
        Self {
            comm: receive.comm,
            source: receive.source,
            tag: receive.tag,
            buffer,
            end: End::Open,
            found: None,
        }
    }
}

/// The name of a message, which determines its bytes: see [`content`].
pub fn name(plan: &Plan, message: usize) -> u64 {
    plan.seed << 20 | message as u64
}

/// Checks that each message arrived once, whole, in the receive that matches it by MPI 5.0 section 3.5.
pub fn check(plan: &Plan, logs: &[Log]) {
    let mut streams = Streams::new(plan, logs);
    for (rank, log) in (0..).zip(logs) {
        for (order, received) in log.received.iter().enumerate() {
            streams.check(rank, order, received);
        }
    }
    streams.check_nothing_left();
    streams.check_no_overtaking();
}

/// Sender, receiver, communicator.
type Pair = (u32, u32, usize);

struct Streams<'a> {
    plan: &'a Plan,
    /// For each pair and tag, the messages that are not assigned to a receive yet. The earliest message is the last in
    /// the list.
    left: HashMap<(Pair, i32), Vec<usize>>,
    /// For each pair, its messages in the order of the sends.
    sent: HashMap<Pair, Vec<usize>>,
    /// For each message, the receive that got it, as an index in the receiver's order.
    taken: HashMap<usize, usize>,
    /// Receives with any tag: the pair, the index of the receive in the receiver's order, and the message.
    any_tag: Vec<(Pair, usize, usize)>,
}

impl<'a> Streams<'a> {
    fn new(plan: &'a Plan, logs: &[Log]) -> Self {
        let (mut left, mut sent) = (HashMap::new(), HashMap::new());
        for id in logs.iter().flat_map(|log| &log.sent) {
            let message = &plan.messages[*id];
            let pair = (message.from, message.to, message.comm);
            let tagged: &mut Vec<usize> = left.entry((pair, message.tag)).or_default();
            tagged.push(*id);
            let all: &mut Vec<usize> = sent.entry(pair).or_default();
            all.push(*id);
        }
        left.values_mut().for_each(|ids| ids.reverse());
        Self {
            plan,
            left,
            sent,
            taken: HashMap::new(),
            any_tag: Vec::new(),
        }
    }

    fn check(&mut self, rank: u32, order: usize, received: &Received) {
        let (source, tag, got) = match received.end {
            End::Cancelled => return,
            End::Open => panic!("rank {rank} never collected {received:?}"),
            End::Freed => (
                received.source.expect("freed receives name their source"),
                received.tag.expect("freed receives name their tag"),
                None,
            ),
            End::Got {
                source,
                tag,
                bytes,
                truncated,
            } => {
                let members = &self.plan.comms[received.comm].members;
                let place = usize::try_from(source).unwrap_or(usize::MAX);
                let world = members.get(place);
                let world = *world.unwrap_or_else(|| panic!("source {source} of {received:?}"));
                (world, tag, Some((bytes, truncated)))
            }
        };
        let matches_request = received.source.is_none_or(|wanted| wanted == source)
            && received.tag.is_none_or(|wanted| wanted == tag);
        assert!(
            matches_request,
            "rank {rank} got a message that it did not request: {received:?}"
        );
        let pair = (source, rank, received.comm);
        let stream = self.left.get_mut(&(pair, tag));
        let Some(message) = stream.and_then(Vec::pop) else {
            panic!("rank {rank} got a message that was not sent: {received:?}");
        };
        self.taken.insert(message, order);
        if received.tag.is_none() {
            self.any_tag.push((pair, order, message));
        }
        self.check_bytes(rank, message, received, got);
    }

    fn check_bytes(
        &self,
        rank: u32,
        message: usize,
        received: &Received,
        got: Option<(u64, Option<u64>)>,
    ) {
        let sent = self.plan.messages[message].bytes;
        let buffer = received.buffer.as_ref().expect("it came back at the end");
        let fits = sent.min(buffer.bytes);
        let expected = (fits, (sent > buffer.bytes).then_some(sent));
        let context = format!("message {message} at rank {rank}: {:?}", received.end);
        if let Some(got) = got {
            assert_eq!(got, expected, "bytes, and whether truncated: {context}");
        }
        if let Some((source, tag, bytes)) = received.found {
            let message = &self.plan.messages[message];
            let is = (message.from, message.tag, message.bytes);
            assert_eq!(
                (source, tag, bytes),
                is,
                "the probe found another: {context}"
            );
        }
        let content = content(name(self.plan, message), sent);
        let arrived = buffer.content();
        let (head, rest) = arrived.split_at(fits as usize);
        assert!(head == &content[..fits as usize], "wrong bytes: {context}");
        let untouched = rest.iter().all(|byte| *byte == crate::memory::UNTOUCHED);
        assert!(untouched && buffer.is_clean(), "bytes outside: {context}");
    }

    fn check_nothing_left(&self) {
        for ((pair, tag), ids) in &self.left {
            assert!(
                ids.is_empty(),
                "never received: {pair:?}, tag {tag}: {ids:?}"
            );
        }
    }

    /// Checks that messages do not overtake: if a receive with any tag got a message, each earlier message of that
    /// sender must have been received by an earlier receive.
    fn check_no_overtaking(&self) {
        for (pair, order, message) in &self.any_tag {
            let earlier = self.sent[pair].iter().take_while(|id| *id != message);
            for id in earlier {
                assert!(
                    self.taken[id] < *order,
                    "message {message} overtook {id} ({pair:?})"
                );
            }
        }
    }
}
