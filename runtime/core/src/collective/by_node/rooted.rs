// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gather and scatter [by node](super), of blocks whose lengths may be known only to the root. The ranks of the root's
//! node communicate directly with the root. Each rank of another node has a [slot](super::slots) for the length of its
//! block, and for the block if it is small. The leader of a node and the root exchange the slots of the node in one
//! message, and the blocks that do not fit their slots in a second message. Blocks of more than
//! `RMPI_NODE_GATHER_LIMIT` bytes are sent directly between the root and their rank.
//!
//! A rank follows the contents of a slot, not its own expectation. So ranks that disagree about a length all complete,
//! and the rank that detects the disagreement gets an error. A receive for a block that is expected directly is posted
//! at the beginning, before the slots have arrived. It is cancelled if the slots show that the block is not sent
//! directly.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::super::blocks::{gather_equal, scatter_equal};
use super::super::collective_call::PendingMessages;
use super::super::gather_tree::of_root;
use super::super::various::{gather_various, scatter_various};
use super::slots::{ExchangeSlots, Travels};
use super::{
    ByNodeCall, CollectiveCall, CollectiveRoot, CommNodes, Error, Payload, Visit, cut_mut, dense,
};

/// As [`gather`](super::super::gather).
pub(in super::super) async fn gather<V: Visit>(
    call: &CollectiveCall<V>,
    nodes: Rc<CommNodes>,
    mine: Option<&Payload>,
    all: &[Payload],
    root: CollectiveRoot,
) -> Result<(), Error> {
    let Some((to, own)) = of_root(call, mine, all, root) else {
        return Ok(());
    };
    let by = ByNodeCall::of(call, nodes, Some(to)).await?;
    match (by.is_with(to), by.leads()) {
        (true, true) => collect(&by, mine, all).await,
        (true, false) => gather_various(&by.near, Some(own), &[], by.root()).await,
        (false, true) => pass_up(&by, own, to).await,
        (false, false) => give(&by, own, to).await,
    }
}

/// The part of a rank that is not a leader in a gather: sends its block to the leader, or directly to the root.
async fn give<V: Visit>(by: &ByNodeCall<'_, V>, own: &Payload, root: u32) -> Result<(), Error> {
    let mut slot = by.slots(1);
    slot.put(0, own);
    let one = slot.whole();
    by.defer_error(gather_equal(&by.near, Some(&one), &[], by.root()).await)?;
    match slot.travels(0) {
        Travels::InSlot => Ok(()),
        Travels::Together => send_to(&by.near, by.leader, own).await,
        Travels::Alone => send_to(by.call, root, own).await,
    }
}

/// The part of a leader in a gather: forwards the blocks of its node's ranks.
async fn pass_up<V: Visit>(by: &ByNodeCall<'_, V>, own: &Payload, root: u32) -> Result<(), Error> {
    let (mut slot, mut all) = (by.slots(1), by.slots(by.near.size() as usize));
    slot.put(0, own);
    let (one, places) = (slot.whole(), all.places());
    by.defer_error(gather_equal(&by.near, Some(&one), &places, CollectiveRoot::Here).await)?;
    let lengths = all.together();
    let mut packed = vec![0; lengths.iter().sum()];
    let mut coming = by.near.pending();
    for (rank, part) in (0..).zip(cut_mut(&mut packed, &lengths)) {
        if rank != by.leader && !part.is_empty() {
            coming.receive(rank, part);
        } else if !part.is_empty() {
            let copied = own.copy_to(&dense(part));
            copied.unwrap_or_else(|error| by.call.note(error));
        }
    }
    by.defer_error(coming.finish().await)?;
    let node = by.node_of(root);
    let mut sent = by.across.pending();
    sent.send(node, all.bytes());
    if !packed.is_empty() {
        sent.send(node, &packed);
    }
    if slot.travels(0) == Travels::Alone {
        sent.send_payload(node, own);
    }
    sent.finish().await
}

/// The part of the root in a gather: collects the blocks of all ranks.
async fn collect<V: Visit>(
    by: &ByNodeCall<'_, V>,
    mine: Option<&Payload>,
    all: &[Payload],
) -> Result<(), Error> {
    let near = by.of_ranks_near(all);
    let mut others = by.others();
    let mut coming = by.across.pending();
    let mut early = BTreeMap::new();
    for (node, ranks, slots) in &mut others {
        coming.receive(*node, slots.bytes());
        // No receive is posted yet for the block of the leader, the first rank: if the leader sends its own block
        // directly, that message comes after its other messages.
        for rank in ranks.iter().skip(1) {
            if let Some(pending) = expect_alone(by, *rank, &all[*rank as usize]) {
                early.insert(*rank, pending);
            }
        }
    }
    let gathered = gather_various(&by.near, mine, &near, CollectiveRoot::Here).await;
    let come = coming.finish().await;
    if let Err(lost) = by.defer_error(gathered.and(come)) {
        for pending in early.into_values() {
            give_up(pending).await;
        }
        return Err(lost);
    }
    let (mut coming, mut alone) = (by.across.pending(), by.call.pending());
    let mut messages = Vec::new();
    for (node, ranks, slots) in &others {
        let lengths = slots.together();
        let mut packed = vec![0; lengths.iter().sum()];
        if !packed.is_empty() {
            coming.receive(*node, &mut packed);
        }
        for (at, rank) in ranks.iter().enumerate() {
            match (slots.travels(at) == Travels::Alone, early.get(rank)) {
                (true, None) => alone.receive_payload(*rank, &all[*rank as usize]),
                (false, Some(pending)) => pending.take_back(),
                _ => {}
            }
        }
        messages.push((packed, lengths));
    }
    let come = coming.finish().await;
    let mut come = come.and(alone.finish().await);
    for pending in early.into_values() {
        come = come.and(pending.finish().await);
    }
    come?;
    for ((_, ranks, slots), (mut packed, lengths)) in others.into_iter().zip(messages) {
        let places = ranks.iter().map(|rank| &all[*rank as usize]);
        let parts = cut_mut(&mut packed, &lengths).map(dense);
        for ((at, place), part) in places.enumerate().zip(parts) {
            let taken = take(&slots, at, &part, place);
            taken.unwrap_or_else(|error| by.call.note(error));
        }
    }
    Ok(())
}

/// As [`scatter`](super::super::scatter).
pub(in super::super) async fn scatter<V: Visit>(
    call: &CollectiveCall<V>,
    nodes: Rc<CommNodes>,
    all: &[Payload],
    mine: Option<&Payload>,
    root: CollectiveRoot,
) -> Result<(), Error> {
    let Some((from, own)) = of_root(call, mine, all, root) else {
        return Ok(());
    };
    let by = ByNodeCall::of(call, nodes, Some(from)).await?;
    match (by.is_with(from), by.leads()) {
        (true, true) => distribute(&by, all, mine).await,
        (true, false) => scatter_various(&by.near, &[], Some(own), by.root()).await,
        (false, true) => pass_down(&by, own, from).await,
        (false, false) => get(&by, own, from).await,
    }
}

/// The part of the root in a scatter: sends the blocks of all ranks.
async fn distribute<V: Visit>(
    by: &ByNodeCall<'_, V>,
    all: &[Payload],
    mine: Option<&Payload>,
) -> Result<(), Error> {
    let near = by.of_ranks_near(all);
    let mut others = by.others();
    let (mut sent, mut alone) = (by.across.pending(), by.call.pending());
    let mut messages = Vec::new();
    for (node, ranks, slots) in &mut others {
        let mut packed = Vec::new();
        let blocks = || ranks.iter().map(|rank| (*rank, &all[*rank as usize]));
        for (at, (_, block)) in blocks().enumerate() {
            slots.put(at, block);
            if slots.travels(at) == Travels::Together {
                packed.extend_from_slice(&block.to_dense());
            }
        }
        sent.send(*node, slots.bytes());
        if !packed.is_empty() {
            sent.send(*node, &packed);
        }
        for (at, (rank, block)) in blocks().enumerate() {
            if slots.travels(at) == Travels::Alone {
                alone.send_payload(rank, block);
            }
        }
        messages.push(packed);
    }
    let sent_near = scatter_various(&by.near, &near, mine, CollectiveRoot::Here).await;
    let sent = sent.finish().await;
    sent_near.and(sent).and(alone.finish().await)
}

/// The part of a leader in a scatter: forwards the blocks for its node's ranks.
async fn pass_down<V: Visit>(
    by: &ByNodeCall<'_, V>,
    own: &Payload,
    root: u32,
) -> Result<(), Error> {
    let (mut slot, mut all) = (by.slots(1), by.slots(by.near.size() as usize));
    let node = by.node_of(root);
    by.defer_error(by.across.receive(node, all.bytes()).await)?;
    let lengths = all.together();
    let mut packed = vec![0; lengths.iter().sum()];
    if !packed.is_empty() {
        by.defer_error(by.across.receive(node, &mut packed).await)?;
    }
    let (one, places) = (slot.whole(), all.places());
    by.defer_error(scatter_equal(&by.near, &places, Some(&one), CollectiveRoot::Here).await)?;
    let parts: Vec<Payload> = cut_mut(&mut packed, &lengths).map(dense).collect();
    let mut sent = by.near.pending();
    for (rank, part) in (0..).zip(&parts) {
        if rank != by.leader && part.bytes() > 0 {
            sent.send_payload(rank, part);
        }
    }
    let own = match slot.travels(0) {
        Travels::Alone => receive_from(&by.across, node, own).await,
        _ => take(&slot, 0, &parts[by.leader as usize], own),
    };
    sent.finish().await.and(own)
}

/// The part of a rank that is not a leader in a scatter: receives its block.
async fn get<V: Visit>(by: &ByNodeCall<'_, V>, own: &Payload, root: u32) -> Result<(), Error> {
    let mut slot = by.slots(1);
    let early = expect_alone(by, root, own);
    let one = slot.whole();
    let received = by.defer_error(scatter_equal(&by.near, &[], Some(&one), by.root()).await);
    let comes_alone = received.is_ok() && slot.travels(0) == Travels::Alone;
    match early {
        Some(pending) if comes_alone => return pending.finish().await,
        Some(pending) => give_up(pending).await,
        None => {}
    }
    received?;
    match slot.travels(0) {
        Travels::InSlot => slot.take(0, own),
        Travels::Together => receive_from(&by.near, by.leader, own).await,
        Travels::Alone => receive_from(by.call, root, own).await,
    }
}

impl<V: Visit> ByNodeCall<'_, V> {
    /// Whether a rank is on this node.
    fn is_with(&self, rank: u32) -> bool {
        self.node_of(rank) == self.across.rank()
    }

    fn slots(&self, ranks: usize) -> ExchangeSlots {
        ExchangeSlots::new(ranks, self.together_bytes())
    }

    /// Largest block, in bytes, that is sent together with other blocks.
    fn together_bytes(&self) -> u64 {
        self.call.shape().node_gather_bytes as u64
    }

    /// Each other node: its index among the leaders, its ranks, and the slots for these ranks.
    fn others(&self) -> Vec<(u32, Vec<u32>, ExchangeSlots)> {
        let others = self.other_nodes().map(|(node, ranks)| {
            let slots = self.slots(ranks.len());
            (node, ranks, slots)
        });
        others.collect()
    }
}

/// Posts a receive for a block from a rank on another node, if the block is so long that it should be sent directly.
fn expect_alone<'a, V: Visit>(
    by: &'a ByNodeCall<'_, V>,
    from: u32,
    place: &Payload,
) -> Option<PendingMessages<'a, V>> {
    let travels = Travels::of(place.bytes(), by.together_bytes());
    (travels == Travels::Alone).then(|| {
        let mut pending = by.call.pending();
        pending.receive_payload(from, place);
        pending
    })
}

/// Cancels receives whose messages will not come.
#[cold]
async fn give_up<V: Visit>(pending: PendingMessages<'_, V>) {
    pending.take_back();
    // The outcome of these receives does not matter, because no message is sent for them.
    _ = pending.finish().await;
}

/// Copies a block from its slot, or from `part` if it did not fit the slot, to its place.
fn take(slots: &ExchangeSlots, at: usize, part: &Payload, place: &Payload) -> Result<(), Error> {
    match slots.travels(at) {
        Travels::InSlot => slots.take(at, place),
        Travels::Together => part.copy_to(place),
        Travels::Alone => Ok(()),
    }
}

async fn send_to<V: Visit>(call: &CollectiveCall<V>, to: u32, data: &Payload) -> Result<(), Error> {
    let mut pending = call.pending();
    pending.send_payload(to, data);
    pending.finish().await
}

async fn receive_from<V: Visit>(
    call: &CollectiveCall<V>,
    from: u32,
    place: &Payload,
) -> Result<(), Error> {
    let mut pending = call.pending();
    pending.receive_payload(from, place);
    pending.finish().await
}
