// SPDX-License-Identifier: MIT OR Apache-2.0
//! The small-message path from one rank to another: a ring of 64 slots, each one cache line, with one producer and one
//! consumer.

use crate::layout::{SLOT_WORDS, SLOTS};
use crate::sync::{AtomicU32, AtomicU64, Ordering, Own32, Own64, light_fence};

/// The memory of one ring: one page, whose bytes are 0 in a new ring.
#[derive(Debug)]
#[repr(C)]
#[cfg_attr(not(loom), repr(align(4096)))]
pub struct Ring {
    slots: [RingSlot; SLOTS as usize],
}

/// One cache line. `head` is `sequence | kind << 32 | len << 40 | flags << 48` and is stored last.
#[derive(Debug)]
#[repr(C)]
#[cfg_attr(not(loom), repr(align(64)))]
struct RingSlot {
    head: AtomicU64,
    word: AtomicU64,
    body: [AtomicU64; SLOT_WORDS],
}

/// The reverse direction of a ring, from its receiver to its sender: one cache line that only the receiver writes.
#[derive(Debug)]
#[repr(C)]
#[cfg_attr(not(loom), repr(align(64)))]
pub struct PairLine {
    consumed: AtomicU32,
    attention: AtomicU32,
    /// Number of releases of the buffer that the sender fills only for this receiver.
    own_releases: AtomicU32,
}

/// The part of a frame's head that the ring carries without interpreting it. The ring does not check `len`; its user
/// does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Kind of frame; opaque to the ring.
    pub kind: u8,
    /// A length in bytes, or a marker; opaque to the ring.
    pub len: u8,
    /// Sixteen bits; opaque to the ring.
    pub flags: u16,
    /// Sixty-four bits; opaque to the ring.
    pub word: u64,
}

/// A frame that was taken from a ring: a private copy, so nothing in it changes after the caller has checked it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The head that the sender pushed.
    pub head: Head,
    /// The body that the sender pushed. The words behind those that the sender wrote hold values of earlier frames in
    /// the slot.
    pub body: [u64; SLOT_WORDS],
}

/// A frame that is still in its slot, with a private copy of its head.
#[derive(Clone, Copy, Debug)]
pub struct Peeked<'a> {
    slot: &'a RingSlot,
    /// The head that the sender pushed.
    pub head: Head,
}

impl Peeked<'_> {
    /// Word `index` of the body, read now: the sender can change it.
    #[inline(always)]
    #[must_use]
    pub fn word(&self, index: usize) -> u64 {
        self.slot.body[index].load(Ordering::Relaxed)
    }
}

/// A free slot that the producer is filling.
#[derive(Debug)]
pub struct Filling<'p, 'a> {
    producer: &'p mut Producer<'a>,
    slot: &'a RingSlot,
}

impl Filling<'_, '_> {
    /// Writes word `index` of the body; no effect if a body has no such word.
    #[inline(always)]
    pub fn put(&self, index: usize, word: u64) {
        if let Some(cell) = self.slot.body.get(index) {
            // R1: the slot is the producer's until its head is published.
            cell.store(word, Ordering::Relaxed);
        }
    }

    /// Publishes the frame. `true`: the receiver polls this ring; `false`: the caller must ring its bell, as after
    /// [`Producer::push`].
    #[inline(always)]
    #[must_use]
    pub fn publish(self, head: Head) -> bool {
        // Counted before the frame is published, so a concurrent reader sees too few words, never too many.
        self.producer.published.pushed.add(1);
        self.producer.publish(self.slot, head)
    }
}

/// No slot is free: an ordinary result, not a failure. The caller tries again after the receiver has returned credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// The sending end of a ring.
#[derive(Debug)]
pub struct Producer<'a> {
    ring: &'a Ring,
    line: &'a PairLine,
    sent: u32,
    /// Number of frames that the receiver is known to have taken, plus the number of slots of the ring: `sent` cannot
    /// exceed this.
    limit: u32,
    /// The buffer that is filled only for this receiver is in use while its count of releases has this value.
    own_taken_at: Option<u32>,
    published: &'a ProducerCounts,
}

/// A producer's counters, for other threads of its process and for signal handlers.
#[derive(Debug)]
pub struct ProducerCounts {
    sent: Own32,
    /// The full 64-bit count of frames at some moment within the last 2^31 frames.
    passed: Own64,
    /// Frames published through [`Producer::push`] or [`Filling`], that is, all except those of [`Producer::try_push`]
    /// (words).
    pushed: Own64,
    /// Words that were marked as shorter than eight bytes.
    short_words: Own64,
}

/// The numbers of frames that a ring has carried so far. `frames` and `words` are never too high, and too low only
/// while a push is in progress; `short_words` may include words that `words` does not contain yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingCounts {
    /// All frames.
    pub frames: u64,
    /// Frames of [`Producer::try_push`].
    pub words: u64,
    /// Frames of [`Producer::try_push`] that were marked as short.
    pub short_words: u64,
}

impl ProducerCounts {
    /// Counters of a ring through which nothing was sent yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            sent: Own32::new(0),
            passed: Own64::new(0),
            pushed: Own64::new(0),
            short_words: Own64::new(0),
        }
    }

    /// The numbers of frames sent through the ring so far.
    #[must_use]
    pub fn counts(&self) -> RingCounts {
        // Read first, so that `pushed`, which is subtracted below, is at least as recent.
        let sent = self.sent.observe();
        let frames = frames(sent, self.passed.get());
        RingCounts {
            frames,
            words: frames.saturating_sub(self.pushed.get()),
            short_words: self.short_words.get(),
        }
    }
}

impl Default for ProducerCounts {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> Producer<'a> {
    /// The producer of a new ring, whose words are 0. A ring must never have a second producer (R1).
    #[must_use]
    pub fn new(ring: &'a Ring, line: &'a PairLine) -> Self {
        Self {
            ring,
            line,
            sent: 0,
            limit: SLOTS,
            own_taken_at: None,
            published: &UNREAD,
        }
    }

    /// Makes this producer publish its counters in `published`. Called before the first frame is sent.
    #[must_use]
    pub fn with_counts(self, published: &'a ProducerCounts) -> Self {
        Self { published, ..self }
    }

    /// A producer that never has a free slot, if its line is [closed](PairLine::closed). It is used for a peer that has
    /// no ring.
    #[must_use]
    pub fn blocked(ring: &'a Ring, line: &'a PairLine) -> Self {
        Self {
            limit: 0,
            ..Self::new(ring, line)
        }
    }

    /// Publishes one frame. `true`: the receiver polls this ring; `false`: the caller must ring its bell
    /// ([`Bell::ring`](crate::Bell::ring)).
    ///
    /// # Errors
    /// [`Full`] when all slots are in use; nothing was written.
    #[inline(always)]
    pub fn push(&mut self, head: Head, body: &[u64]) -> Result<bool, Full> {
        let slot = self.begin()?;
        for (index, word) in body.iter().enumerate() {
            slot.put(index, *word);
        }
        Ok(slot.publish(head))
    }

    /// The next slot, to be filled and [published](Filling::publish). If it is not published, it stays free.
    ///
    /// # Errors
    /// [`Full`] when all slots are in use.
    #[inline(always)]
    pub fn begin(&mut self) -> Result<Filling<'_, 'a>, Full> {
        if self.sent == self.limit && !self.refresh() {
            return Err(Full);
        }
        let slot = self.slot();
        Ok(Filling {
            producer: self,
            slot,
        })
    }

    /// Publishes a frame with a body of one word, and returns the result of [`push`](Self::push). It uses only a slot
    /// that is known to be free; `None`: none is known, so the returned credit has to be read. Head and word are
    /// computed only when a slot is free, so they occupy no registers during the check. `short`: whether the word has
    /// fewer than eight bytes.
    #[inline(always)]
    pub fn try_push(
        &mut self,
        short: bool,
        head: impl FnOnce() -> Head,
        word: impl FnOnce() -> u64,
    ) -> Option<bool> {
        // `if` instead of `then`: a closure around closures is not always inlined.
        if self.has_known_slot() {
            if short {
                self.published.short_words.add(1);
            }
            let slot = self.slot();
            let head = head();
            slot.body[0].store(word(), Ordering::Relaxed);
            Some(self.publish(slot, head))
        } else {
            None
        }
    }

    /// Whether a slot is known to be free, without reading the returned credit.
    #[inline(always)]
    #[must_use]
    pub fn has_known_slot(&self) -> bool {
        self.sent != self.limit
    }

    #[inline(always)]
    fn slot(&self) -> &'a RingSlot {
        &self.ring.slots[(self.sent % SLOTS) as usize]
    }

    /// Publishes the frame in `slot`. `true`: the receiver polls this ring. R1: from now on the slot is the consumer's.
    #[inline(always)]
    fn publish(&mut self, slot: &RingSlot, head: Head) -> bool {
        slot.word.store(head.word, Ordering::Relaxed);
        self.sent = self.sent.wrapping_add(1);
        self.published.sent.publish(self.sent);
        // PAIR(slot-full): Consumer::pop loads the head with Acquire. No cache line other than the slot moves between
        // the cores.
        slot.head.store(pack(self.sent, head), Ordering::Release);
        // Fence pair "attention": Consumer::end_polling stores the attention, and then its caller makes the heavy
        // fence.
        light_fence();
        self.line.attention.load(Ordering::Relaxed) == POLLING
    }

    /// Whether a push would find a free slot, after reading the returned credit.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        self.sent != self.limit || self.refresh()
    }

    /// Frames published so far, modulo 2^32.
    #[must_use]
    pub fn sent(&self) -> u32 {
        self.sent
    }

    /// Takes the buffer that is filled only for this receiver ([`OWN_BUFFER`](crate::OWN_BUFFER)); `false`: the
    /// receiver has not released it yet. The frame that names the buffer publishes its bytes: PAIR(slot-full).
    pub fn acquire_own(&mut self) -> bool {
        // PAIR(own-free): Consumer::release_own stores the count with Release after the receiver's copy.
        let count = self.line.own_releases.load(Ordering::Acquire);
        let free = self.own_taken_at != Some(count);
        self.own_taken_at = Some(count);
        free
    }

    #[cold]
    #[inline(never)]
    fn refresh(&mut self) -> bool {
        // This function is called at least once per lap of the ring, so fewer than 2^31 frames are sent between two
        // calls.
        let passed = &self.published.passed;
        passed.set(frames(self.sent, passed.get()));
        // PAIR(slot-free): Consumer::return_credit stores the count with Release.
        let consumed = self.line.consumed.load(Ordering::Acquire);
        // R4: only a count from the known one to the number of frames sent is accepted.
        let known = self.limit.wrapping_sub(SLOTS);
        if consumed.wrapping_sub(known) <= self.sent.wrapping_sub(known) {
            self.limit = consumed.wrapping_add(SLOTS);
        }
        self.sent != self.limit
    }
}

/// The full 64-bit count of frames, of which `sent` is the low half. `passed` is a full count of another moment: an
/// earlier one, or, for another thread, perhaps a later one.
#[allow(
    clippy::cast_possible_truncation,
    reason = "the low half is cut out of the count"
)]
fn frames(sent: u32, passed: u64) -> u64 {
    let more = sent.wrapping_sub(passed as u32).cast_signed();
    passed.wrapping_add_signed(more.into())
}

/// Counters for producers whose counts nothing reads.
static UNREAD: ProducerCounts = ProducerCounts::new();

/// The receiving end of a ring.
#[derive(Debug)]
pub struct Consumer<'a> {
    ring: &'a Ring,
    line: &'a PairLine,
    next: u32,
    returned: u32,
}

impl<'a> Consumer<'a> {
    /// The consumer of a new ring, whose words are 0. A ring must never have a second consumer (R1).
    #[must_use]
    pub fn new(ring: &'a Ring, line: &'a PairLine) -> Self {
        Self {
            ring,
            line,
            next: 0,
            returned: 0,
        }
    }

    /// Takes the next frame, if one is published.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<Frame> {
        let frame = self.peek()?;
        let body = core::array::from_fn(|index| frame.word(index));
        self.take();
        let head = frame.head;
        Some(Frame { head, body })
    }

    /// The next frame, if one is published. It stays in its slot until [`take`](Self::take) is called.
    #[inline(always)]
    #[must_use]
    pub fn peek(&self) -> Option<Peeked<'a>> {
        let slot = self.slot();
        // PAIR(slot-full): Producer::publish stores the head with Release.
        let packed = slot.head.load(Ordering::Acquire);
        if sequence(packed) != self.next.wrapping_add(1) {
            return None;
        }
        let head = unpack(packed, slot.word.load(Ordering::Relaxed));
        Some(Peeked { slot, head })
    }

    /// Like [`peek`](Self::peek), but returns the next frame only if it has this kind and length and no flags. This
    /// check costs one comparison.
    #[inline(always)]
    #[must_use]
    pub fn peek_plain(&self, kind: u8, len: u8) -> Option<Peeked<'a>> {
        let slot = self.slot();
        let mut head = Head {
            kind,
            len,
            flags: 0,
            word: 0,
        };
        // PAIR(slot-full): Producer::publish stores the head with Release.
        if slot.head.load(Ordering::Acquire) != pack(self.next.wrapping_add(1), head) {
            return None;
        }
        head.word = slot.word.load(Ordering::Relaxed);
        Some(Peeked { slot, head })
    }

    /// Takes the frame that [`peek`](Self::peek) returned. `true`: it was the last of a batch of 32 frames, so credit
    /// was returned.
    #[inline(always)]
    pub fn take(&mut self) -> bool {
        self.next = self.next.wrapping_add(1);
        // A batch ends at a fixed frame number, so the credit of at most one batch is held back, even if credit was
        // returned in between.
        let ends_a_batch = self.next.is_multiple_of(CREDIT_BATCH);
        if ends_a_batch {
            self.return_credit();
        }
        ends_a_batch
    }

    #[inline(always)]
    fn slot(&self) -> &'a RingSlot {
        &self.ring.slots[(self.next % SLOTS) as usize]
    }

    /// Whether a frame has arrived. It is not taken.
    #[inline]
    #[must_use]
    pub fn is_ready(&self) -> bool {
        sequence(self.slot().head.load(Ordering::Relaxed)) == self.next.wrapping_add(1)
    }

    /// Prefetches the cache line of the next slot, whose frame may be published already.
    #[inline(always)]
    pub fn prefetch(&self) {
        #[cfg(not(loom))]
        crate::segment::prefetch(self.slot());
    }

    /// Returns the credit of all frames taken so far. [`take`](Self::take) does this every 32 frames. The receiver also
    /// does it before it sleeps, so that a sender that waits for room gets all its credit.
    #[inline]
    pub fn return_credit(&mut self) {
        if self.returned != self.next {
            self.returned = self.next;
            // PAIR(slot-free): Producer::refresh loads the count with Acquire.
            self.line.consumed.store(self.next, Ordering::Release);
        }
    }

    /// Gives the buffer that the sender fills only for this receiver.
    pub fn release_own(&self) {
        let next = self
            .line
            .own_releases
            .load(Ordering::Relaxed)
            .wrapping_add(1);
        // PAIR(own-free): Producer::acquire_own loads the word with Acquire before the sender writes again.
        self.line.own_releases.store(next, Ordering::Release);
    }

    /// Signals to the sender that this ring is polled and that the bell need not be rung.
    ///
    /// Before it sleeps, the caller must call [`end_polling`](Self::end_polling), then make every running thread of the
    /// node execute a full fence (`membarrier`), then poll the ring once more.
    pub fn begin_polling(&self) {
        self.line.attention.store(POLLING, Ordering::Relaxed);
    }

    /// Revokes [`begin_polling`](Self::begin_polling): from now on the sender rings the bell.
    pub fn end_polling(&self) {
        // Fence pair "attention": Producer::publish makes the light fence between its publication and its load of this
        // word.
        self.line.attention.store(AWAY, Ordering::Relaxed);
    }

    /// Frames taken so far, modulo 2^32.
    #[must_use]
    pub fn taken(&self) -> u32 {
        self.next
    }
}

impl Ring {
    /// An empty ring in private memory, for tests and models; in a segment, zero pages are empty rings.
    #[must_use]
    pub fn new() -> Self {
        Self {
            slots: core::array::from_fn(|_| RingSlot::new()),
        }
    }
}

impl Default for Ring {
    fn default() -> Self {
        Self::new()
    }
}

impl PairLine {
    /// A new pair line in private memory, for tests and models.
    #[must_use]
    pub fn new() -> Self {
        Self {
            consumed: AtomicU32::new(0),
            attention: AtomicU32::new(AWAY),
            own_releases: AtomicU32::new(0),
        }
    }

    /// A line that never returns credit: its ring stays full.
    #[must_use]
    pub fn closed() -> Self {
        Self {
            consumed: AtomicU32::new(SLOTS.wrapping_neg()),
            ..Self::new()
        }
    }

    /// Overwrites the line as a hostile process could, with any credit count and any attention.
    #[doc(hidden)]
    pub fn scribble(&self, consumed: u32, attention: u32) {
        self.consumed.store(consumed, Ordering::Relaxed);
        self.attention.store(attention, Ordering::Relaxed);
    }
}

impl Default for PairLine {
    fn default() -> Self {
        Self::new()
    }
}

impl RingSlot {
    fn new() -> Self {
        Self {
            head: AtomicU64::new(0),
            word: AtomicU64::new(0),
            body: core::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

#[inline(always)]
fn pack(sequence: u32, head: Head) -> u64 {
    u64::from(sequence)
        | u64::from(head.kind) << 32
        | u64::from(head.len) << 40
        | u64::from(head.flags) << 48
}

#[inline(always)]
#[allow(
    clippy::cast_possible_truncation,
    reason = "the low half is cut out of the word"
)]
fn sequence(packed: u64) -> u32 {
    packed as u32
}

#[inline(always)]
#[allow(
    clippy::cast_possible_truncation,
    reason = "the fields are cut out of the word"
)]
fn unpack(packed: u64, word: u64) -> Head {
    Head {
        kind: (packed >> 32) as u8,
        len: (packed >> 40) as u8,
        flags: (packed >> 48) as u16,
        word,
    }
}

/// 0, since in a new segment, whose bytes are 0, the sender must ring the bell.
const AWAY: u32 = 0;
const POLLING: u32 = 1;
/// Frames per return of credit: the pair line moves between the caches once for 32 frames.
#[cfg(not(loom))]
const CREDIT_BATCH: u32 = SLOTS / 2;
#[cfg(loom)]
const CREDIT_BATCH: u32 = SLOTS;

#[cfg(not(loom))]
const _: () = {
    assert!(
        size_of::<RingSlot>() == 64 && size_of::<Ring>() == 4096 && size_of::<PairLine>() == 64
    );
    assert!(SLOTS.is_power_of_two());
};

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn head(kind: u8) -> Head {
        Head {
            kind,
            len: 8,
            flags: 0x1234,
            word: u64::MAX - u64::from(kind),
        }
    }

    #[test]
    fn frames_come_out_in_order_and_whole() {
        let (ring, line) = (Ring::new(), PairLine::new());
        let (mut tx, mut rx) = (Producer::new(&ring, &line), Consumer::new(&ring, &line));
        assert_eq!(rx.pop(), None);
        for lap in 0..1000u64 {
            let kind = (lap % 251) as u8;
            assert_eq!(tx.push(head(kind), &[lap, !lap]), Ok(false));
            let frame = rx.pop().unwrap();
            assert_eq!(
                (frame.head, frame.body[0], frame.body[1]),
                (head(kind), lap, !lap)
            );
            assert_eq!(rx.pop(), None);
        }
    }

    #[test]
    fn peek_plain_requires_kind_length_and_no_flags() {
        let (ring, line) = (Ring::new(), PairLine::new());
        let (mut tx, mut rx) = (Producer::new(&ring, &line), Consumer::new(&ring, &line));
        let plain = Head {
            flags: 0,
            ..head(3)
        };
        assert!(rx.peek_plain(3, 8).is_none(), "nothing is there");
        // Two laps, so that every slot has a frame of the second lap.
        for _ in 0..2 * SLOTS {
            tx.push(plain, &[7]).unwrap();
            assert!(rx.peek_plain(3, 4).is_none() && rx.peek_plain(4, 8).is_none());
            let frame = rx.peek_plain(3, 8).unwrap();
            assert_eq!((frame.head, frame.word(0)), (plain, 7));
            rx.take();
            assert!(rx.peek_plain(3, 8).is_none(), "it was taken");
        }
        tx.push(head(3), &[7]).unwrap();
        assert!(rx.peek_plain(3, 8).is_none(), "it has flags");
        assert_eq!(rx.peek().unwrap().head, head(3));
    }

    #[test]
    fn at_most_one_credit_batch_is_withheld() {
        let (ring, line) = (Ring::new(), PairLine::new());
        let (mut tx, mut rx) = (Producer::new(&ring, &line), Consumer::new(&ring, &line));
        for turn in 0..1000u32 {
            tx.push(head(1), &[]).unwrap();
            rx.pop().unwrap();
            if turn % 7 == 0 {
                rx.return_credit();
            }
            let returned = line.consumed.load(Ordering::Relaxed);
            assert!(rx.taken() - returned < CREDIT_BATCH);
        }
    }

    #[test]
    fn own_buffer_is_free_initially_and_after_release() {
        let (ring, line) = (Ring::new(), PairLine::new());
        let (mut tx, rx) = (Producer::new(&ring, &line), Consumer::new(&ring, &line));
        for _ in 0..3 {
            assert!(tx.acquire_own());
            assert!(!tx.acquire_own() && !tx.acquire_own());
            rx.release_own();
        }
    }

    #[test]
    fn full_ring_rejects_the_push() {
        let (ring, line) = (Ring::new(), PairLine::new());
        let (mut tx, mut rx) = (Producer::new(&ring, &line), Consumer::new(&ring, &line));
        for i in 0..64u64 {
            assert!(tx.push(head(1), &[i]).is_ok());
        }
        assert_eq!(tx.push(head(1), &[64]), Err(Full));
        assert!(!tx.has_room());
        assert_eq!(rx.pop().unwrap().body[0], 0);
        assert_eq!(
            tx.push(head(1), &[64]),
            Err(Full),
            "credit returns in batches"
        );
        rx.return_credit();
        assert!(tx.push(head(1), &[64]).is_ok());
        for i in 1..=64u64 {
            assert_eq!(rx.pop().unwrap().body[0], i);
        }
        assert_eq!(rx.pop(), None);
    }

    #[test]
    fn counters_wrap() {
        let (ring, line) = (Ring::new(), PairLine::new());
        let (mut tx, mut rx) = (Producer::new(&ring, &line), Consumer::new(&ring, &line));
        let near = u32::MAX - 100;
        (tx.sent, tx.limit, rx.next, rx.returned) = (near, near.wrapping_add(SLOTS), near, near);
        line.scribble(near, AWAY);
        for i in 0..300u64 {
            assert!(tx.push(head(1), &[i]).is_ok(), "push {i}");
            assert_eq!(rx.pop().unwrap().body[0], i);
        }
    }

    #[test]
    fn a_blocked_producer_never_has_room() {
        let (ring, line) = (Ring::new(), PairLine::closed());
        let mut tx = Producer::blocked(&ring, &line);
        for _ in 0..3 {
            assert_eq!(tx.push(head(1), &[0]), Err(Full));
            assert_eq!(tx.try_push(false, || head(1), || 0), None);
            assert!(!tx.has_room());
        }
    }

    #[test]
    fn producer_counts_frames_words_and_short_words() {
        let (ring, line, published) = (Ring::new(), PairLine::new(), ProducerCounts::new());
        let mut tx = Producer::new(&ring, &line).with_counts(&published);
        let mut rx = Consumer::new(&ring, &line);
        for turn in 0..1000u64 {
            while !tx.has_room() {
                rx.pop();
            }
            let pushed = tx.try_push(turn % 4 == 0, || head(1), || turn);
            assert!(pushed.is_some());
            while turn % 10 == 0 && tx.push(head(2), &[]).is_err() {
                rx.pop();
            }
        }
        let counts = published.counts();
        assert_eq!(
            (counts.frames, counts.words, counts.short_words),
            (1100, 1000, 250)
        );
        while tx.push(head(2), &[]).is_ok() {}
        assert_eq!(
            published.counts().words,
            1000,
            "a frame without room is none"
        );
    }

    #[test]
    fn frame_count_extends_beyond_32_bits() {
        let lap = 1u64 << 32;
        assert_eq!(frames(5, lap - 3), lap + 5);
        assert_eq!(frames(u32::MAX, lap + 2), lap - 1);
        assert_eq!(frames(7, 7), 7);
    }

    #[test]
    fn polling_receiver_needs_no_doorbell() {
        let (ring, line) = (Ring::new(), PairLine::new());
        let (mut tx, rx) = (Producer::new(&ring, &line), Consumer::new(&ring, &line));
        assert_eq!(tx.push(head(1), &[]), Ok(false));
        rx.begin_polling();
        assert_eq!(tx.push(head(1), &[]), Ok(true));
        rx.end_polling();
        assert_eq!(tx.push(head(1), &[]), Ok(false));
    }

    #[test]
    fn invalid_credit_frees_no_slots() {
        let (ring, line) = (Ring::new(), PairLine::new());
        let mut tx = Producer::new(&ring, &line);
        for i in 0..64u64 {
            assert!(tx.push(head(1), &[i]).is_ok());
        }
        for wild in [65, 1000, u32::MAX, 1 << 31] {
            line.scribble(wild, 77);
            assert_eq!(tx.push(head(1), &[0]), Err(Full), "credit {wild}");
        }
        line.scribble(64, 0);
        assert!(tx.push(head(1), &[0]).is_ok());
        line.scribble(3, 0);
        assert!(
            tx.has_room(),
            "a credit that runs backwards takes nothing away"
        );
    }
}
