// SPDX-License-Identifier: MIT OR Apache-2.0
//! The outbox of each peer: frames that wait until they can be posted. Two rules bound memory: frames wait in an outbox
//! while the transport has no room, and the receiver has a budget for unexpected data (THROTTLE, RELEASE; promise E3).

use std::collections::VecDeque;

use queue_layout::{
    CHUNK_SLOTS, FLAG_CANCELLED, FLAG_EARLY, FLAG_ORPHAN, FLAG_SYNCHRONOUS, MAX_CHUNKS,
    RequestKind, RequestState,
};

use crate::synchronous::{MARK, mark_in_flags, mark_of};
use crate::wire::{self, FrameHead};
use crate::{Engine, EventType, FrameBody, OutFrame, Output, Peer, RequestId};

/// The frames that wait for one peer, and what that peer accepts.
#[derive(Debug)]
pub(crate) struct Outbox {
    waiting: OutboxQueue,
    /// Whether an eager message may be posted directly: the queue is empty, the peer has not sent THROTTLE, and it is
    /// alive. The fast path checks only this.
    clear: bool,
    /// Whether the peer has requested RTS for every message.
    throttled: bool,
    /// Whether the peer is dead: nothing is sent to it any more.
    lost: bool,
}

impl Default for Outbox {
    fn default() -> Self {
        Self {
            waiting: OutboxQueue::default(),
            clear: true,
            throttled: false,
            lost: false,
        }
    }
}

/// The frames that wait for one peer, in order. Until the first frame waits, the queue takes only one word: most peers
/// of a job never have a waiting frame.
#[derive(Debug, Default)]
struct OutboxQueue(
    #[allow(clippy::box_collection, reason = "a word for each peer, not four")]
    Option<Box<VecDeque<PendingFrame>>>,
);

impl OutboxQueue {
    fn iter(&self) -> impl Iterator<Item = &PendingFrame> {
        self.0.iter().flat_map(|all| all.iter())
    }

    fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |all| all.len())
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn front(&self) -> Option<&PendingFrame> {
        self.0.as_ref()?.front()
    }

    fn front_mut(&mut self) -> Option<&mut PendingFrame> {
        self.0.as_mut()?.front_mut()
    }

    fn back_mut(&mut self) -> Option<&mut PendingFrame> {
        self.0.as_mut()?.back_mut()
    }

    fn push_back(&mut self, outgoing: PendingFrame) {
        self.0.get_or_insert_default().push_back(outgoing);
    }

    fn pop_front(&mut self) -> Option<PendingFrame> {
        self.0.as_mut()?.pop_front()
    }
}

/// A frame that has not been sent yet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PendingFrame {
    /// A message that is not sent or announced yet. At the head of the queue it becomes EAGER, FIRST or RTS.
    Message(RequestId),
    /// The rest of a message whose data the peer has requested.
    Stream {
        request: RequestId,
        receive: u32,
        offset: u64,
        end: u64,
    },
    /// The rest of an early message: no other frame may overtake it.
    More { request: RequestId, offset: u64 },
    /// A control frame.
    Control {
        head: FrameHead,
        words: [u64; 6],
        count: u8,
    },
}

impl Engine {
    /// Whether an eager message to `peer` may be posted directly: no frame waits for that peer, and it accepts eager
    /// messages.
    #[inline(always)]
    #[must_use]
    pub fn is_clear(&self, peer: Peer) -> bool {
        self.outboxes[peer.0 as usize].clear
    }

    /// Whether [`is_clear`](Self::is_clear) is true for every peer, and no [guard](Self::guard_sends) is on. Takes one
    /// load, for the fast path.
    #[inline(always)]
    #[must_use]
    pub fn is_all_clear(&self) -> bool {
        self.blocked == 0
    }

    /// The next peer with waiting frames, round robin; `None` if no frames wait.
    #[inline]
    pub fn next_busy(&mut self) -> Option<Peer> {
        let peer = self.busy.pop_front()?;
        self.busy.push_back(peer);
        Some(peer)
    }

    /// Number of peers with waiting frames.
    #[inline(always)]
    #[must_use]
    pub fn busy_peers(&self) -> usize {
        self.busy.len()
    }

    /// The peers with waiting frames, in round-robin order.
    pub fn busy(&self) -> impl Iterator<Item = Peer> {
        self.busy.iter().copied()
    }

    /// Whether this process may exit: no frame is queued except THROTTLE and RELEASE, for which no peer waits. Also,
    /// each send whose request the application has freed must have ended, because its message must still arrive (MPI
    /// 5.0 section 11.2.2).
    #[must_use]
    pub fn may_exit(&self) -> bool {
        let is_advice = |outgoing: &PendingFrame| {
            matches!(outgoing, PendingFrame::Control { head, .. }
                if matches!(head.kind, wire::THROTTLE | wire::RELEASE))
        };
        let mut busy = self.busy.iter();
        let quiet = busy.all(|peer| {
            let waiting = &self.outboxes[peer.0 as usize].waiting;
            waiting.iter().all(is_advice)
        });
        let is_freed_send = |id| {
            let fields = self.arena.fields(id);
            fields.kind == RequestKind::Send && fields.flags & FLAG_ORPHAN != 0
        };
        quiet && !self.arena.iter().any(is_freed_send)
    }

    /// The next frame for `peer`. The frame stays in the outbox until [`posted`](Self::posted) is called. If another
    /// method is called first, the frame must be fetched again, because a queued FIN may have grown.
    pub fn next_frame(&mut self, peer: Peer) -> Option<OutFrame> {
        loop {
            let outbox = &self.outboxes[peer.0 as usize];
            let outgoing = *outbox.waiting.front().filter(|_| !outbox.lost)?;
            match self.frame(peer, outgoing) {
                Some(frame) => return Some(frame),
                None => self.drop_front(peer),
            }
        }
    }

    /// Removes the frame that [`next_frame`](Self::next_frame) returned: the transport has taken its bytes.
    pub fn posted(&mut self, peer: Peer) {
        let Some(outgoing) = self.outboxes[peer.0 as usize].waiting.front().copied() else {
            return;
        };
        match outgoing {
            PendingFrame::Control { .. } => {}
            PendingFrame::Message(request) => {
                if self.goes_eager(peer, request) {
                    self.posted_whole(request);
                } else if self.goes_early(peer, request) {
                    let bytes = self.arena.change(request, |fields| {
                        fields.state = RequestState::Moving;
                        fields.bytes
                    });
                    self.counters.early.add(1);
                    self.counters.early_bytes.add(bytes);
                    return self.replace_front(peer, PendingFrame::More { request, offset: 0 });
                } else {
                    self.posted_announcement(request);
                }
            }
            PendingFrame::More { request, offset } => {
                let end = self.arena.fields(request).bytes;
                let offset = end.min(offset + self.config.stream_chunk_bytes);
                if offset < end {
                    return self.replace_front(peer, PendingFrame::More { request, offset });
                }
                self.complete(request);
            }
            PendingFrame::Stream {
                request,
                receive,
                offset,
                end,
            } => {
                let offset = end.min(offset + self.config.stream_chunk_bytes);
                if offset < end {
                    // The rest of a large message goes to the back of the queue: other messages may overtake it.
                    let rest = PendingFrame::Stream {
                        request,
                        receive,
                        offset,
                        end,
                    };
                    self.outboxes[peer.0 as usize].waiting.push_back(rest);
                } else {
                    self.note_request(EventType::RendezvousSendEnd, request);
                    self.complete(request);
                }
            }
        }
        self.drop_front(peer);
    }

    /// A message has been posted whole. A synchronous send now waits for its match; any other send completes.
    fn posted_whole(&mut self, request: RequestId) {
        if self.arena.fields(request).flags & FLAG_SYNCHRONOUS == 0 {
            return self.complete(request);
        }
        self.arena
            .change(request, |fields| fields.state = RequestState::Announced);
    }

    fn posted_announcement(&mut self, request: RequestId) {
        let bytes = self.arena.change(request, |fields| {
            fields.state = RequestState::Announced;
            // The send has no mark any more: a CANCEL names an announced send by its token.
            fields.scratch[MARK] = 0;
            fields.bytes
        });
        self.counters.announced.add(1);
        self.counters.announced_bytes.add(bytes);
        self.note_request(EventType::RendezvousSendBegin, request);
    }

    fn replace_front(&mut self, peer: Peer, outgoing: PendingFrame) {
        if let Some(front) = self.outboxes[peer.0 as usize].waiting.front_mut() {
            *front = outgoing;
        }
    }

    pub(crate) fn put_off(&mut self, peer: Peer, outgoing: PendingFrame) {
        let outbox = &mut self.outboxes[peer.0 as usize];
        if outbox.waiting.is_empty() && !outbox.lost {
            self.busy.push_back(peer);
        }
        outbox.waiting.push_back(outgoing);
        self.set_clear(peer, false);
    }

    /// Stops sending to a lost peer and drops the frames that wait for it.
    pub(crate) fn shut_outbox(&mut self, peer: Peer) {
        let outbox = &mut self.outboxes[peer.0 as usize];
        outbox.lost = true;
        outbox.waiting = OutboxQueue::default();
        self.set_clear(peer, false);
        self.busy.retain(|busy| *busy != peer);
        self.throttling.retain(|throttling| *throttling != peer);
    }

    fn set_clear(&mut self, peer: Peer, clear: bool) {
        let outbox = &mut self.outboxes[peer.0 as usize];
        if std::mem::replace(&mut outbox.clear, clear) != clear {
            self.blocked = if clear {
                self.blocked - 1
            } else {
                self.blocked + 1
            };
        }
    }

    pub(crate) fn put_off_control(&mut self, peer: Peer, head: FrameHead, words: &[u64]) {
        let mut body = [0; 6];
        body[..words.len()].copy_from_slice(words);
        #[allow(clippy::cast_possible_truncation, reason = "at most six words")]
        let count = words.len() as u8;
        self.put_off(
            peer,
            PendingFrame::Control {
                head,
                words: body,
                count,
            },
        );
    }

    /// Queues the FIN for a message that was read. If a FIN with room is at the back of the queue, adds the message's
    /// token to that FIN. So a frame that [`next_frame`](Self::next_frame) returned before this call, and that is not
    /// [`posted`](Self::posted) yet, must be fetched again.
    pub(crate) fn put_off_fin(&mut self, peer: Peer, token: u32) {
        if let Some(PendingFrame::Control { head, words, count }) =
            self.outboxes[peer.0 as usize].waiting.back_mut()
            && head.kind == wire::FIN
            && head.flags < wire::MAX_FURTHER_TOKENS
        {
            *count = wire::put_further(words, head.flags, token);
            head.flags += 1;
            return;
        }
        self.put_off_control(peer, control(wire::FIN, wire::token_word(token, 0)), &[]);
    }

    /// Whether more than [`MAX_WAITING`] frames wait for `peer`: so many that it must have stopped taking frames in. If
    /// so, frames from `peer` that need an answer are refused: the answers would fill the memory.
    pub(crate) fn is_flooded(&self, peer: Peer) -> bool {
        self.outboxes[peer.0 as usize].waiting.len() > MAX_WAITING
    }

    /// Whether frames from `peer` may be answered: the peer exists, and is not [flooded](Self::is_flooded).
    pub(crate) fn may_answer(&self, peer: Peer) -> bool {
        (peer.0 as usize) < self.outboxes.len() && !self.is_flooded(peer)
    }

    pub(crate) fn arrive_throttle(&mut self, peer: Peer, on: bool) -> Option<Output> {
        let outbox = &mut self.outboxes[peer.0 as usize];
        let before = std::mem::replace(&mut outbox.throttled, on);
        let clear = outbox.waiting.is_empty() && !on && !outbox.lost;
        self.set_clear(peer, clear);
        match (before, on) {
            (false, true) => {
                self.counters.throttled.add(1);
                self.note_peer(EventType::CreditStallBegin, peer, 0);
            }
            (true, false) => {
                self.counters.released.add(1);
                self.note_peer(EventType::CreditStallEnd, peer, 0);
            }
            _ => {}
        }
        None
    }

    /// Counts unexpected data that arrived. Above the limits, queues THROTTLE for the sender of the data.
    pub(crate) fn charge(&mut self, peer: Peer, bytes: u64) {
        let counters = &self.counters;
        counters.kept_bytes.add(bytes + KEPT_OVERHEAD_BYTES);
        let kept_bytes = counters.kept_bytes.get();
        let peak = counters.kept_bytes_peak.get().max(kept_bytes);
        counters.kept_bytes_peak.set(peak);
        let over_budget = kept_bytes > self.config.unexpected_budget_bytes;
        let crowded = counters.unexpected_length.get() > self.config.unexpected_messages;
        if (over_budget || crowded) && !self.throttling.contains(&peer) {
            counters.throttles.add(1);
            self.throttling.push(peer);
            self.put_off_control(peer, control(wire::THROTTLE, 0), &[]);
            self.note_peer(EventType::SenderThrottled, peer, kept_bytes);
        }
    }

    /// Subtracts unexpected data that were delivered.
    pub(crate) fn refund(&mut self, bytes: u64) {
        self.counters.kept_bytes.sub(bytes + KEPT_OVERHEAD_BYTES);
        self.relax();
    }

    /// Releases all throttled senders if unexpected data and messages have fallen to
    /// [`Config::release_percent`](crate::Config::release_percent) of their limits.
    pub(crate) fn relax(&mut self) {
        let config = &self.config;
        let part = |limit: u64| u128::from(limit) * u128::from(config.release_percent) / 100;
        if !self.throttling.is_empty()
            && u128::from(self.counters.kept_bytes.get()) <= part(config.unexpected_budget_bytes)
            && u128::from(self.counters.unexpected_length.get()) <= part(config.unexpected_messages)
        {
            for peer in std::mem::take(&mut self.throttling) {
                self.put_off_control(peer, control(wire::RELEASE, 0), &[]);
                self.note_peer(
                    EventType::SenderReleased,
                    peer,
                    self.counters.kept_bytes.get(),
                );
            }
        }
    }

    pub(crate) fn goes_eager(&self, peer: Peer, request: RequestId) -> bool {
        let fields = self.arena.fields(request);
        fields.bytes <= self.config.eager_limit_bytes
            && (fields.flags & FLAG_SYNCHRONOUS == 0 || mark_of(fields) != 0)
            && !self.outboxes[peer.0 as usize].throttled
    }

    /// Whether a message above the eager limit is sent as an early message, in several frames.
    fn goes_early(&self, peer: Peer, request: RequestId) -> bool {
        let fields = self.arena.fields(request);
        let wanted = fields.flags & (FLAG_EARLY | FLAG_SYNCHRONOUS) == FLAG_EARLY;
        wanted
            && fields.bytes <= self.config.early_limit_bytes.min(wire::MAX_EARLY_BYTES)
            && fields.bytes > 0
            && !self.outboxes[peer.0 as usize].throttled
    }

    fn frame(&self, peer: Peer, outgoing: PendingFrame) -> Option<OutFrame> {
        match outgoing {
            PendingFrame::Control { head, words, count } => Some(OutFrame {
                head,
                body: FrameBody::Words { words, count },
            }),
            PendingFrame::Message(request) => {
                let cancelled = self.arena.fields(request).flags & FLAG_CANCELLED != 0;
                (!cancelled).then(|| self.message_frame(peer, request))
            }
            PendingFrame::More { request, offset } => {
                let left = self.arena.fields(request).bytes - offset;
                Some(OutFrame {
                    head: control(wire::MORE, 0),
                    body: FrameBody::Payload {
                        request,
                        offset,
                        bytes: left.min(self.config.stream_chunk_bytes),
                    },
                })
            }
            PendingFrame::Stream {
                request,
                receive,
                offset,
                end,
            } => {
                let bytes = (end - offset).min(self.config.stream_chunk_bytes);
                let head = control(
                    wire::DATA,
                    wire::token_word(receive, self.arena.token(request)),
                );
                Some(OutFrame {
                    head,
                    body: FrameBody::Payload {
                        request,
                        offset,
                        bytes,
                    },
                })
            }
        }
    }

    fn message_frame(&self, peer: Peer, request: RequestId) -> OutFrame {
        let fields = self.arena.fields(request);
        let word = wire::envelope_word(crate::ContextId(fields.context), fields.tag);
        if self.goes_eager(peer, request) {
            let head = FrameHead {
                kind: wire::EAGER,
                flags: mark_in_flags(fields),
                word,
            };
            return OutFrame {
                head,
                body: FrameBody::Payload {
                    request,
                    offset: 0,
                    bytes: fields.bytes,
                },
            };
        }
        if self.goes_early(peer, request) {
            return OutFrame {
                head: control(wire::FIRST, word),
                body: FrameBody::Words {
                    words: [fields.bytes, 0, 0, 0, 0, 0],
                    count: 1,
                },
            };
        }
        let synchronous = fields.flags & FLAG_SYNCHRONOUS != 0;
        let flags = if synchronous {
            wire::RTS_SYNCHRONOUS
        } else {
            0
        };
        let [k0, k1, k2, ..] = fields.scratch;
        let words = [
            u64::from(self.arena.token(request)),
            fields.bytes,
            k0,
            k1,
            k2,
            0,
        ];
        let head = FrameHead {
            kind: wire::RTS,
            flags,
            word,
        };
        OutFrame {
            head,
            body: FrameBody::Words {
                words,
                count: wire::RTS_WORDS,
            },
        }
    }

    fn drop_front(&mut self, peer: Peer) {
        let outbox = &mut self.outboxes[peer.0 as usize];
        if let Some(PendingFrame::Message(request)) = outbox.waiting.pop_front()
            && self.arena.fields(request).flags & FLAG_CANCELLED != 0
        {
            self.complete(request);
        }
        let outbox = &mut self.outboxes[peer.0 as usize];
        if outbox.waiting.is_empty() {
            let clear = !outbox.throttled;
            self.set_clear(peer, clear);
            self.busy.retain(|busy| *busy != peer);
        }
    }
}

/// Each kept message is counted with this many bytes in addition to its body, for its slot and its share of the tables.
/// Otherwise empty messages would count nothing.
const KEPT_OVERHEAD_BYTES: u64 = 192;
/// Maximum number of frames that can wait for a peer that still takes in frames: one message for each request slot of
/// this process, and two answers for each request slot of the peer.
const MAX_WAITING: usize = 3 * MAX_CHUNKS * CHUNK_SLOTS;

pub(crate) fn control(kind: u8, word: u64) -> FrameHead {
    FrameHead {
        kind,
        flags: 0,
        word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    /// The number of unexpected messages at which a sender is throttled, and the number at which it is released.
    fn throttled_and_released(config: Config) -> (u64, u64) {
        let mut engine = Engine::new(config, 2);
        let count = |engine: &Engine| engine.counters.unexpected_length.get();
        while engine.throttling.is_empty() {
            engine.counters.unexpected_length.add(1);
            engine.charge(Peer(1), 0);
        }
        let most = count(&engine);
        while !engine.throttling.is_empty() {
            engine.counters.unexpected_length.sub(1);
            engine.refund(0);
        }
        (most, count(&engine))
    }

    #[test]
    fn an_idle_peer_takes_16_bytes() {
        assert_eq!(size_of::<Outbox>(), 16);
    }

    #[test]
    fn senders_are_throttled_and_released_at_the_message_limits() {
        let config = Config {
            unexpected_messages: 40,
            ..Config::default()
        };
        assert_eq!(throttled_and_released(config), (41, 20));
        let config = Config {
            release_percent: 90,
            ..config
        };
        assert_eq!(throttled_and_released(config), (41, 36));
        let config = Config {
            release_percent: 0,
            ..config
        };
        assert_eq!(throttled_and_released(config), (41, 0));
    }

    #[test]
    fn the_byte_budget_is_released_at_the_same_percentage() {
        let config = Config {
            unexpected_budget_bytes: 100 * KEPT_OVERHEAD_BYTES,
            release_percent: 25,
            ..Config::default()
        };
        assert_eq!(throttled_and_released(config), (101, 25));
    }
}
