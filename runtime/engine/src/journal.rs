// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records the events that tools have subscribed to, and stores the records until the owner takes them.
//!
//! No callback runs here: the records wait in a list of limited length. Records that do not fit are dropped and
//! counted. Without a subscriber, recording an event costs a load and a branch.

use queue_layout::{EventType, RequestFields, RequestKind};

use crate::{Engine, Peer};

/// Number of data words of a record.
pub const WORDS: usize = 5;

/// One event that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventRecord {
    /// Type of the event.
    pub event: EventType,
    /// Time of the event, by the owner's clock.
    pub at: u64,
    /// Data of the event; their meaning depends on the type.
    pub words: [u64; WORDS],
}

/// Event records in the order in which the events happened, and the number of dropped records of each event type.
#[derive(Clone, Debug)]
pub struct EventRecordList {
    /// The records.
    pub list: Vec<EventRecord>,
    /// Number of records dropped after those in `list`, by event type.
    pub dropped: [u64; EventType::COUNT],
}

impl Default for EventRecordList {
    fn default() -> Self {
        Self {
            list: Vec::new(),
            dropped: [0; EventType::COUNT],
        }
    }
}

/// The records of an engine.
#[derive(Debug)]
pub(crate) struct Journal {
    clock: fn() -> u64,
    records: EventRecordList,
    most: usize,
    /// Whether there are records, or counts of dropped records, to take.
    has_records: bool,
}

impl Journal {
    pub(crate) fn with_room(most: usize) -> Self {
        Self {
            clock: || 0,
            most,
            records: EventRecordList::default(),
            has_records: false,
        }
    }

    #[cold]
    #[inline(never)]
    fn add(&mut self, event: EventType, words: [u64; WORDS]) {
        self.has_records = true;
        // Once a record has been dropped, all later records are dropped too, until the list is taken. So all dropped
        // records are later than those in the list.
        let has_room = self.records.list.len() < self.most;
        if has_room {
            let at = (self.clock)();
            self.records.list.push(EventRecord { event, at, words });
        } else {
            self.records.dropped[event as usize] += 1;
        }
    }
}

impl Engine {
    /// Sets the clock for the times of records. Without a clock all times are 0.
    pub fn set_clock(&mut self, clock: fn() -> u64) {
        self.journal.clock = clock;
    }

    /// Records an event if a tool has subscribed to it.
    #[inline(always)]
    pub fn note(&mut self, event: EventType, words: [u64; WORDS]) {
        if self.counters.subscribed.has(event) {
            self.journal.add(event, words);
        }
    }

    /// Whether [`take_records`](Self::take_records) has something to return.
    #[must_use]
    pub fn has_records(&self) -> bool {
        self.journal.has_records
    }

    /// Returns the records since the last call, and removes them.
    pub fn take_records(&mut self) -> EventRecordList {
        self.journal.has_records = false;
        std::mem::take(&mut self.journal.records)
    }

    /// Records an event of a message: context, peer, tag, bytes and one further word.
    #[inline(always)]
    pub(crate) fn note_message(&mut self, event: EventType, of: impl FnOnce(&Self) -> Message) {
        if self.counters.subscribed.has(event) {
            let message = of(self);
            self.journal.add(event, words_of(message));
        }
    }

    /// Records an event of the message that a request sends or has received.
    #[inline(always)]
    pub(crate) fn note_request(&mut self, event: EventType, request: crate::RequestId) {
        if self.counters.subscribed.has(event) {
            self.note_end(event, request);
        }
    }

    #[cold]
    #[inline(never)]
    fn note_end(&mut self, event: EventType, request: crate::RequestId) {
        if let Some(message) = of_request(self.arena.fields(request)) {
            self.journal.add(event, words_of(message));
        }
    }

    /// Records an event of a peer: the data words are the peer, `more` and zeros.
    pub(crate) fn note_peer(&mut self, event: EventType, peer: Peer, more: u64) {
        self.note(event, [peer.0.into(), more, 0, 0, 0]);
    }
}

/// Context, peer, tag, bytes, and one further word: [`SEND`] or [`RECEIVE`] for a request, 0 for an unexpected message.
type Message = (u32, u32, i32, u64, u64);

/// The message of a request; `None` for generalized and collective requests.
fn of_request(fields: &RequestFields) -> Option<Message> {
    match fields.kind {
        RequestKind::Receive => {
            let bytes = fields.matched_bytes.min(fields.bytes);
            let (peer, tag) = (fields.matched_peer, fields.matched_tag);
            Some((fields.context, peer, tag, bytes, RECEIVE))
        }
        RequestKind::Send => Some((fields.context, fields.peer, fields.tag, fields.bytes, SEND)),
        _ => None,
    }
}

fn words_of((context, peer, tag, bytes, more): Message) -> [u64; WORDS] {
    let tag = i64::from(tag).cast_unsigned();
    [context.into(), peer.into(), tag, bytes, more]
}

const SEND: u64 = 0;
const RECEIVE: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn unsubscribed_events_are_skipped_and_overflow_is_counted() {
        const MOST: usize = 70;
        let config = Config {
            max_records: MOST,
            ..Config::default()
        };
        let mut engine = Engine::new(config, 2);
        engine.note_peer(EventType::PeerLost, Peer(1), 0);
        assert!(!engine.has_records());
        engine.counters.subscribed.set(EventType::PeerLost.bit());
        engine.set_clock(|| 42);
        for more in 0..MOST as u64 + 3 {
            engine.note_peer(EventType::PeerLost, Peer(1), more);
            engine.note_peer(EventType::SenderThrottled, Peer(1), 0);
        }
        assert!(engine.has_records());
        let records = engine.take_records();
        assert_eq!(records.list.len(), MOST);
        let last = records.list[MOST - 1];
        assert_eq!((last.at, last.words[..2].to_vec()), (42, vec![1, 69]));
        assert_eq!(records.dropped[EventType::PeerLost as usize], 3);
        assert_eq!(records.dropped.iter().sum::<u64>(), 3);
        assert!(!engine.has_records() && engine.take_records().list.is_empty());
    }
}
