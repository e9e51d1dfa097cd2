// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who waits for what: posted receives and unexpected messages, in bins by (context, source).
//!
//! A bin is a queue in posting (arrival) order; tags are compared, not hashed, so that `MPI_ANY_TAG` is no special
//! case. Receives from any source stand in the bin of (context, any); when that is not empty, the lower sequence
//! number decides (MPI 5.0 section 3.5). Every unexpected message is linked twice: for its source and for any source.

use std::sync::Arc;

use queue_layout::{
    ANY_PEER, ANY_TAG, CHUNK_SLOTS, FLAG_PLAIN, Fields, Kind, Queued, Slot, State, Tally,
};

use crate::request::{Arena, RequestId};

/// The three queues of one hash value; other (context, source) pairs may share it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bin {
    posted: List,
    unexpected: List,
    /// Unexpected messages of a context in order of arrival, in the bin of (context, any).
    order: List,
}

/// Head and tail of a queue; 0 is no slot. The tail means something only where there is a head, and a slot's link to
/// the one before it only where it is not the head: so the head is taken out by one store.
#[derive(Clone, Copy, Debug, Default)]
struct List {
    head: u32,
    tail: u32,
}

#[derive(Debug)]
pub(crate) struct Matching {
    bins: Box<[Bin]>,
    /// Receives from any source that are posted, and one more while the fast paths are [guarded](Self::guard).
    wild: u32,
    /// Whether posted receives are counted by their context: then the fast paths are guarded, and no posted receive is plain.
    by_context: bool,
    tally: Arc<Tally>,
}

/// What a message shows and a receive asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) context: u32,
    /// [`ANY_PEER`] in a receive from any source.
    pub(crate) peer: u32,
    /// [`ANY_TAG`] in a receive of any tag.
    pub(crate) tag: i32,
}

impl Matching {
    pub(crate) fn new(tally: Arc<Tally>) -> Self {
        Self {
            bins: vec![Bin::default(); FIRST_BINS].into(),
            wild: 0,
            by_context: false,
            tally,
        }
    }

    /// Takes the first posted receive that the message matches out of its queue.
    #[inline(always)]
    pub(crate) fn take_posted(
        &mut self,
        arena: &mut Arena,
        message: Envelope,
    ) -> Option<RequestId> {
        let mut found = self.find_posted(arena, message.peer, message);
        if self.wild != 0 {
            found = self.arbitrate(arena, message, found);
        }
        let id = found?;
        self.remove_posted(arena, id);
        Some(id)
    }

    /// As [`take_posted`](Self::take_posted), but only where the first receive of the queue is the one, no receive from
    /// any source is posted and nobody has freed the request. Answers the receive's slot too.
    #[inline(always)]
    pub(crate) fn take_head<'a>(
        &mut self,
        arena: &'a mut Arena,
        message: Envelope,
    ) -> Option<(RequestId, &'a mut Slot)> {
        let bin = self.bin(message.context, message.peer);
        let list = &mut self.bins[bin as usize].posted;
        let id = RequestId(list.head);
        let fields = arena.fields(id);
        let matches = fields.tag == message.tag
            && fields.peer == message.peer
            && fields.context == message.context;
        // Slot 0, which an empty queue shows, is never posted.
        if !matches || id.0 == 0 || self.wild != 0 || fields.flags & !FLAG_PLAIN != 0 {
            return None;
        }
        list.head = fields.next;
        Some((id, arena.slot(id)))
    }

    /// Takes a plain receive out of its queue if it is the first there. What is posted from any source came later
    /// ([`quiet_bin`](Self::quiet_bin)).
    #[inline(always)]
    pub(crate) fn take_first(&mut self, receive: &Fields) -> bool {
        match self.bins.get_mut(receive.order_next as usize) {
            Some(bin) if bin.posted.head == receive.token => {
                bin.posted.head = receive.next;
                true
            }
            _ => false,
        }
    }

    /// The bin of such a receive, and its number, if no unexpected message is there, so that none matches, and no
    /// receive from any source is posted: what is in the bin then comes before all that will be posted from any source.
    #[inline(always)]
    pub(crate) fn quiet_bin(&mut self, context: u32, peer: u32) -> Option<(&mut Bin, u32)> {
        let at = self.bin(context, peer);
        let bin = &mut self.bins[at as usize];
        (bin.unexpected.head == 0 && self.wild == 0).then_some((bin, at))
    }

    #[cold]
    #[inline(never)]
    fn arbitrate(
        &self,
        arena: &Arena,
        message: Envelope,
        named: Option<RequestId>,
    ) -> Option<RequestId> {
        let wild = self.find_posted(arena, ANY_PEER, message);
        match (named, wild) {
            (Some(n), Some(w)) => {
                let earlier = arena.fields(w).sequence < arena.fields(n).sequence;
                Some(if earlier { w } else { n })
            }
            (named, wild) => named.or(wild),
        }
    }

    /// The first receive that the message matches, of those from `peer`, which may be [`ANY_PEER`].
    #[inline(always)]
    fn find_posted(&self, arena: &Arena, peer: u32, message: Envelope) -> Option<RequestId> {
        let bin = self.bin(message.context, peer);
        let mut at = self.bins[bin as usize].posted.head;
        while at != 0 {
            self.tally.match_attempts.add(1);
            let fields = arena.fields(RequestId(at));
            let tag = fields.tag == message.tag || fields.tag == ANY_TAG;
            if tag && fields.peer == peer && fields.context == message.context {
                return Some(RequestId(at));
            }
            at = fields.next;
        }
        None
    }

    /// From now on the fast paths refuse, as if a receive from any source were posted; or no longer.
    pub(crate) fn guard(&mut self, on: bool) {
        self.wild = if on { self.wild + 1 } else { self.wild - 1 };
    }

    /// Appends a receive.
    #[inline(always)]
    pub(crate) fn add_posted(&mut self, arena: &mut Arena, id: RequestId) {
        self.keep_up(arena);
        let fields = arena.fields(id);
        self.wild += u32::from(fields.peer == ANY_PEER);
        if self.by_context {
            self.posted_in(fields.context);
        }
        self.append_posted(arena, id);
    }

    #[cold]
    #[inline(never)]
    fn posted_in(&mut self, context: u32) {
        let queues = self.tally.queues(Queued::Posted);
        if queues.are_watched() {
            return queues.arrived(context);
        }
        // Nobody wants to know any more.
        self.by_context = false;
        self.guard(false);
    }

    /// Begins to count the posted receives of a context: see [`queue_layout::Queues::watch`].
    pub(crate) fn watch_posted(&mut self, arena: &mut Arena, context: u32) -> Option<usize> {
        let is_posted = |id: &RequestId| {
            let fields = arena.fields(*id);
            (fields.kind, fields.state) == (Kind::Receive, State::Posted)
        };
        let posted: Vec<RequestId> = arena.iter().filter(is_posted).collect();
        if !self.by_context {
            self.by_context = true;
            self.guard(true);
            for id in &posted {
                arena.change(*id, |fields| fields.flags &= !FLAG_PLAIN);
            }
        }
        let is_in = |id: &&RequestId| arena.fields(**id).context == context;
        let length = posted.iter().filter(is_in).count();
        let queues = self.tally.queues(Queued::Posted);
        queues.watch(context, length as u64)
    }

    #[inline(always)]
    fn append_posted(&mut self, arena: &mut Arena, id: RequestId) {
        let fields = arena.private(id);
        let bin = self.bin(fields.context, fields.peer);
        fields.next = 0;
        fields.order_next = bin;
        self.bins[bin as usize].append(arena, id);
    }

    /// Takes a receive out of its queue.
    #[inline(always)]
    pub(crate) fn remove_posted(&mut self, arena: &mut Arena, id: RequestId) {
        let fields = arena.fields(id);
        self.wild -= u32::from(fields.peer == ANY_PEER);
        if self.by_context {
            self.tally.queues(Queued::Posted).left(fields.context);
        }
        let bin = fields.order_next as usize;
        remove(arena, &mut self.bins[bin].posted, id);
    }

    /// The earliest unexpected message that a receive would match.
    #[inline(always)]
    pub(crate) fn find_unexpected(&self, arena: &Arena, wanted: Envelope) -> Option<RequestId> {
        let bin = &self.bins[self.bin(wanted.context, wanted.peer) as usize];
        let any = wanted.peer == ANY_PEER;
        let mut at = if any {
            bin.order.head
        } else {
            bin.unexpected.head
        };
        while at != 0 {
            self.tally.match_attempts.add(1);
            let fields = arena.fields(RequestId(at));
            let tag = wanted.tag == ANY_TAG || wanted.tag == fields.tag;
            let peer = any || wanted.peer == fields.peer;
            if tag && peer && wanted.context == fields.context {
                return Some(RequestId(at));
            }
            at = if any { fields.order_next } else { fields.next };
        }
        None
    }

    /// Appends an unexpected message.
    pub(crate) fn add_unexpected(&mut self, arena: &mut Arena, id: RequestId) {
        self.keep_up(arena);
        self.append_unexpected(arena, id);
        self.append_in_order(arena, id);
    }

    fn append_unexpected(&mut self, arena: &mut Arena, id: RequestId) {
        let fields = arena.private(id);
        let bin = self.bin(fields.context, fields.peer);
        fields.next = 0;
        append(arena, &mut self.bins[bin as usize].unexpected, id);
    }

    fn append_in_order(&mut self, arena: &mut Arena, id: RequestId) {
        let bin = self.bin(arena.fields(id).context, ANY_PEER);
        append_ordered(arena, &mut self.bins[bin as usize].order, id);
    }

    /// Takes an unexpected message out of both queues.
    pub(crate) fn remove_unexpected(&mut self, arena: &mut Arena, id: RequestId) {
        let fields = arena.fields(id);
        let (context, peer) = (fields.context, fields.peer);
        let bin = self.bin(context, peer);
        remove(arena, &mut self.bins[bin as usize].unexpected, id);
        let bin = self.bin(context, ANY_PEER);
        remove_ordered(arena, &mut self.bins[bin as usize].order, id);
    }

    #[inline(always)]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "fewer bins than slots, 2^19"
    )]
    fn bin(&self, context: u32, peer: u32) -> u32 {
        let hash = peer.wrapping_add(context.wrapping_mul(0x9E37_79B1));
        hash & (self.bins.len() as u32 - 1)
    }

    /// Before something is added: no more than two entries for a bin, on the average, however many slots are in use.
    #[inline(always)]
    fn keep_up(&mut self, arena: &mut Arena) {
        if arena.slots() > 2 * self.bins.len() {
            self.grow(arena);
        }
    }

    /// Four times the bins; every queue is dealt out again in its order, so order inside a queue is kept.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, arena: &mut Arena) {
        let bigger: Box<[Bin]> = vec![Bin::default(); self.bins.len() * 4].into();
        let old = std::mem::replace(&mut self.bins, bigger);
        for bin in &old {
            deal(bin.posted.head, arena, |arena, id| {
                self.append_posted(arena, id);
            });
            deal(bin.unexpected.head, arena, |arena, id| {
                self.append_unexpected(arena, id);
            });
            let mut at = bin.order.head;
            while at != 0 {
                let id = RequestId(at);
                at = arena.fields(id).order_next;
                self.append_in_order(arena, id);
            }
        }
    }
}

impl Bin {
    /// Makes a receive, which nothing follows, the last of the queue.
    #[inline(always)]
    pub(crate) fn append(&mut self, arena: &mut Arena, id: RequestId) {
        append(arena, &mut self.posted, id);
    }
}

fn deal(head: u32, arena: &mut Arena, mut place: impl FnMut(&mut Arena, RequestId)) {
    let mut at = head;
    while at != 0 {
        let id = RequestId(at);
        at = arena.fields(id).next;
        place(arena, id);
    }
}

#[inline(always)]
fn append(arena: &mut Arena, list: &mut List, id: RequestId) {
    if list.head == 0 {
        list.head = id.0;
    } else {
        arena.private(id).prev = list.tail;
        arena.private(RequestId(list.tail)).next = id.0;
    }
    list.tail = id.0;
}

#[inline(always)]
fn remove(arena: &mut Arena, list: &mut List, id: RequestId) {
    let (next, prev) = (arena.fields(id).next, arena.fields(id).prev);
    if list.head == id.0 {
        list.head = next;
    } else {
        arena.private(RequestId(prev)).next = next;
    }
    match next {
        0 => list.tail = prev,
        next => arena.private(RequestId(next)).prev = prev,
    }
}

fn append_ordered(arena: &mut Arena, list: &mut List, id: RequestId) {
    let links = arena.private(id);
    (links.order_next, links.order_prev) = (0, list.tail);
    if list.head == 0 {
        list.head = id.0;
    } else {
        arena.private(RequestId(list.tail)).order_next = id.0;
    }
    list.tail = id.0;
}

fn remove_ordered(arena: &mut Arena, list: &mut List, id: RequestId) {
    let (next, prev) = (arena.fields(id).order_next, arena.fields(id).order_prev);
    if list.head == id.0 {
        list.head = next;
    } else {
        arena.private(RequestId(prev)).order_next = next;
    }
    match next {
        0 => list.tail = prev,
        next => arena.private(RequestId(next)).order_prev = prev,
    }
}

/// For the slots that there are at first.
const FIRST_BINS: usize = CHUNK_SLOTS / 2;
