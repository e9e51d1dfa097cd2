// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who waits for what: posted receives and unexpected messages, in bins by (context, source).
//!
//! A bin is a queue in posting (arrival) order; tags are compared, not hashed, so that `MPI_ANY_TAG` is no special
//! case. Receives from any source stand in the bin of (context, any); when that is not empty, the lower sequence
//! number decides (MPI 5.0 section 3.5). Every unexpected message is linked twice: for its source and for any source.

use queue_layout::{ANY_PEER, ANY_TAG, Slot};

use crate::request::{Arena, RequestId};

/// The three queues of one hash value; other (context, source) pairs may share it.
#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    posted: List,
    unexpected: List,
    /// Unexpected messages of a context in order of arrival, in the bin of (context, any).
    order: List,
}

/// Head and tail of a queue; index 0 is no slot.
#[derive(Clone, Copy, Debug, Default)]
struct List {
    head: u32,
    tail: u32,
}

impl List {
    /// Takes the head out; `next` is what follows it.
    #[inline(always)]
    fn drop_head(&mut self, arena: &mut Arena, next: u32) {
        self.head = next;
        match next {
            0 => self.tail = 0,
            next => arena.private(RequestId(next)).prev = 0,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Matching {
    bins: Box<[Bin]>,
    /// Receives from any source that are posted.
    wild: u32,
    /// Entries that may still be added before the bins grow.
    room: u32,
    /// Receives that are posted.
    posted: u32,
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
    pub(crate) fn new() -> Self {
        Self {
            bins: vec![Bin::default(); FIRST_BINS].into(),
            wild: 0,
            room: FIRST_ROOM,
            posted: 0,
        }
    }

    /// Takes the first posted receive that the message matches out of its queue. `looked` counts the comparisons.
    #[inline(always)]
    pub(crate) fn take_posted(
        &mut self,
        arena: &mut Arena,
        message: Envelope,
        looked: &mut u64,
    ) -> Option<RequestId> {
        let bin = self.bin(message.context, message.peer);
        let mut found = find_posted(
            arena,
            self.bins[bin].posted.head,
            message.peer,
            message,
            looked,
        );
        if self.wild != 0 {
            found = self.arbitrate(arena, message, found, looked);
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
        let list = &mut self.bins[bin].posted;
        let id = RequestId(list.head);
        let fields = arena.fields(id);
        let matches = fields.tag == message.tag
            && fields.peer == message.peer
            && fields.context == message.context;
        // Slot 0, which an empty queue shows, is never posted.
        if !matches || id.0 == 0 || self.wild != 0 || fields.flags != 0 {
            return None;
        }
        list.drop_head(arena, fields.next);
        self.room += 1;
        self.posted -= 1;
        Some((id, arena.slot(id)))
    }

    /// Takes `id`, a receive that asks for `message` and is followed by `next`, out of its queue if it is the first there and
    /// no receive from any source is posted.
    #[inline(always)]
    pub(crate) fn take_first(
        &mut self,
        arena: &mut Arena,
        id: RequestId,
        next: u32,
        message: Envelope,
    ) -> bool {
        let bin = self.bin(message.context, message.peer);
        let list = &mut self.bins[bin].posted;
        if list.head != id.0 || self.wild != 0 {
            return false;
        }
        list.drop_head(arena, next);
        self.room += 1;
        self.posted -= 1;
        true
    }

    /// Where such a receive would stand, if no unexpected message is in its bin: then none matches.
    #[inline(always)]
    pub(crate) fn place_without_unexpected(&self, wanted: Envelope) -> Option<Place> {
        let bin = self.bin(wanted.context, wanted.peer);
        let Bin {
            unexpected, posted, ..
        } = &self.bins[bin];
        let place = Place {
            bin,
            after: posted.tail,
        };
        (unexpected.head == 0 && self.room > 1).then_some(place)
    }

    /// Makes a receive from a definite source the last of a queue. Its links are set already.
    #[inline(always)]
    pub(crate) fn add_last(&mut self, arena: &mut Arena, place: Place, id: RequestId) {
        self.room -= 1;
        self.posted += 1;
        if let Some(bin) = self.bins.get_mut(place.bin) {
            match place.after {
                0 => bin.posted.head = id.0,
                tail => arena.private(RequestId(tail)).next = id.0,
            }
            bin.posted.tail = id.0;
        }
    }

    /// Receives that are posted and not matched.
    pub(crate) fn posted(&self) -> u32 {
        self.posted
    }

    #[cold]
    #[inline(never)]
    fn arbitrate(
        &self,
        arena: &Arena,
        message: Envelope,
        named: Option<RequestId>,
        looked: &mut u64,
    ) -> Option<RequestId> {
        let bin = self.bin(message.context, ANY_PEER);
        let wild = find_posted(arena, self.bins[bin].posted.head, ANY_PEER, message, looked);
        match (named, wild) {
            (Some(n), Some(w)) => {
                let earlier = arena.fields(w).sequence < arena.fields(n).sequence;
                Some(if earlier { w } else { n })
            }
            (named, wild) => named.or(wild),
        }
    }

    /// Appends a receive.
    #[inline(always)]
    pub(crate) fn add_posted(&mut self, arena: &mut Arena, id: RequestId) {
        self.make_room(arena);
        let fields = arena.fields(id);
        let (context, peer) = (fields.context, fields.peer);
        self.wild += u32::from(peer == ANY_PEER);
        self.posted += 1;
        let bin = self.bin(context, peer);
        append(arena, &mut self.bins[bin].posted, id);
    }

    /// Takes a receive out of its queue.
    #[inline(always)]
    pub(crate) fn remove_posted(&mut self, arena: &mut Arena, id: RequestId) {
        let fields = arena.fields(id);
        let (context, peer) = (fields.context, fields.peer);
        self.wild -= u32::from(peer == ANY_PEER);
        self.posted -= 1;
        self.room += 1;
        let bin = self.bin(context, peer);
        remove(arena, &mut self.bins[bin].posted, id);
    }

    /// The earliest unexpected message that a receive would match.
    #[inline(always)]
    pub(crate) fn find_unexpected(
        &self,
        arena: &Arena,
        wanted: Envelope,
        looked: &mut u64,
    ) -> Option<RequestId> {
        let bin = &self.bins[self.bin(wanted.context, wanted.peer)];
        let any = wanted.peer == ANY_PEER;
        let mut at = if any {
            bin.order.head
        } else {
            bin.unexpected.head
        };
        while at != 0 {
            *looked += 1;
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
        self.make_room(arena);
        let fields = arena.fields(id);
        let (context, peer) = (fields.context, fields.peer);
        let bin = self.bin(context, peer);
        append(arena, &mut self.bins[bin].unexpected, id);
        let bin = self.bin(context, ANY_PEER);
        append_ordered(arena, &mut self.bins[bin].order, id);
    }

    /// Takes an unexpected message out of both queues.
    pub(crate) fn remove_unexpected(&mut self, arena: &mut Arena, id: RequestId) {
        let fields = arena.fields(id);
        let (context, peer) = (fields.context, fields.peer);
        self.room += 1;
        let bin = self.bin(context, peer);
        remove(arena, &mut self.bins[bin].unexpected, id);
        let bin = self.bin(context, ANY_PEER);
        remove_ordered(arena, &mut self.bins[bin].order, id);
    }

    #[inline(always)]
    fn bin(&self, context: u32, peer: u32) -> usize {
        let hash = peer.wrapping_add(context.wrapping_mul(0x9E37_79B1));
        hash as usize & (self.bins.len() - 1)
    }

    #[inline(always)]
    fn make_room(&mut self, arena: &mut Arena) {
        if self.room == 1 && self.bins.len() < MOST_BINS {
            self.grow(arena);
        }
        self.room = self.room.saturating_sub(1);
    }

    /// Four times the bins; every queue is dealt out again in its order, so order inside a queue is kept.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, arena: &mut Arena) {
        let bigger: Box<[Bin]> = vec![Bin::default(); self.bins.len() * 4].into();
        // Twice as many entries as bins: what was used stays used.
        let added = 2 * (bigger.len() - self.bins.len());
        self.room += u32::try_from(added).unwrap_or(u32::MAX - self.room);
        let old = std::mem::replace(&mut self.bins, bigger);
        for bin in &old {
            deal(bin.posted.head, arena, |arena, id| {
                let (context, peer) = (arena.fields(id).context, arena.fields(id).peer);
                let bin = self.bin(context, peer);
                append(arena, &mut self.bins[bin].posted, id);
            });
            deal(bin.unexpected.head, arena, |arena, id| {
                let (context, peer) = (arena.fields(id).context, arena.fields(id).peer);
                let bin = self.bin(context, peer);
                append(arena, &mut self.bins[bin].unexpected, id);
            });
            let mut at = bin.order.head;
            while at != 0 {
                let id = RequestId(at);
                at = arena.fields(id).order_next;
                let bin = self.bin(arena.fields(id).context, ANY_PEER);
                append_ordered(arena, &mut self.bins[bin].order, id);
            }
        }
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
fn find_posted(
    arena: &Arena,
    head: u32,
    peer: u32,
    message: Envelope,
    looked: &mut u64,
) -> Option<RequestId> {
    let mut at = head;
    while at != 0 {
        *looked += 1;
        let fields = arena.fields(RequestId(at));
        let tag = fields.tag == message.tag || fields.tag == ANY_TAG;
        if tag && fields.peer == peer && fields.context == message.context {
            return Some(RequestId(at));
        }
        at = fields.next;
    }
    None
}

#[inline(always)]
fn append(arena: &mut Arena, list: &mut List, id: RequestId) {
    let links = arena.private(id);
    (links.next, links.prev) = (0, list.tail);
    match list.tail {
        0 => list.head = id.0,
        tail => arena.private(RequestId(tail)).next = id.0,
    }
    list.tail = id.0;
}

#[inline(always)]
fn remove(arena: &mut Arena, list: &mut List, id: RequestId) {
    let (next, prev) = (arena.fields(id).next, arena.fields(id).prev);
    match prev {
        0 => list.head = next,
        prev => arena.private(RequestId(prev)).next = next,
    }
    match next {
        0 => list.tail = prev,
        next => arena.private(RequestId(next)).prev = prev,
    }
}

fn append_ordered(arena: &mut Arena, list: &mut List, id: RequestId) {
    let links = arena.private(id);
    (links.order_next, links.order_prev) = (0, list.tail);
    match list.tail {
        0 => list.head = id.0,
        tail => arena.private(RequestId(tail)).order_next = id.0,
    }
    list.tail = id.0;
}

fn remove_ordered(arena: &mut Arena, list: &mut List, id: RequestId) {
    let (next, prev) = (arena.fields(id).order_next, arena.fields(id).order_prev);
    match prev {
        0 => list.head = next,
        prev => arena.private(RequestId(prev)).order_next = next,
    }
    match next {
        0 => list.tail = prev,
        next => arena.private(RequestId(next)).order_prev = prev,
    }
}

/// A place in a queue that was found: its bin, and the entry that it comes after, or 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    bin: usize,
    pub(crate) after: u32,
}

const FIRST_BINS: usize = 64;
const FIRST_ROOM: u32 = 128;
const MOST_BINS: usize = 1 << 20;
