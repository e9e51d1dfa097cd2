// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scan and exscan (MPI 5.0 section 6.11): a rank gets the combined data of all ranks up to and including itself
//! (scan), or of all ranks below itself (exscan).

use std::rc::Rc;

use super::board::BoardCall;
use super::choice;
use super::collective_call::PendingMessages;
use super::{CollectiveCall, CollectiveTuning, Reducer, by_node};
use crate::nodes::CommNodes;
use crate::{Error, UserMemory, Visit};

/// Combines the `input` of all ranks up to and including this rank. `output` may be the same memory as `input`.
///
/// # Errors
/// When a message could not be sent or received.
pub async fn scan<V: Visit>(
    call: &CollectiveCall<V>,
    input: UserMemory,
    output: UserMemory,
    op: &impl Reducer,
) -> Result<(), Error> {
    if let Some(nodes) = nodes_of(call, input.bytes()) {
        return Box::pin(by_node::scan(call, nodes, input, output, op)).await;
    }
    scan_plain(call, input, output, op).await
}

/// As [`scan`], without grouping the ranks by node.
pub(super) async fn scan_plain<V: Visit>(
    call: &CollectiveCall<V>,
    input: UserMemory,
    output: UserMemory,
    op: &impl Reducer,
) -> Result<(), Error> {
    let shape = call.shape();
    if goes_along_chain(&shape, input.bytes(), call.size()) {
        return Box::pin(scan_along_chain(call, input, output, op)).await;
    }
    let mut output = output;
    output.copy_from(input);
    if let Some(board) = BoardCall::of(call, input.bytes(), shape.choice.scan.board()) {
        let bytes = output.as_mut_slice();
        return board.combine_first(bytes, call.rank() + 1, op).await;
    }
    let before = Box::pin(before_in_rounds(call, output.as_slice(), op)).await?;
    if let Some(before) = before {
        op.reduce(&before, output.as_mut_slice());
    }
    Ok(())
}

/// Combines the `input` of all ranks below this rank. `output` may be the same memory as `input`; at rank 0 it is not
/// changed.
///
/// # Errors
/// When a message could not be sent or received.
pub async fn exscan<V: Visit>(
    call: &CollectiveCall<V>,
    input: UserMemory,
    output: UserMemory,
    op: &impl Reducer,
) -> Result<(), Error> {
    if let Some(nodes) = nodes_of(call, input.bytes()) {
        return Box::pin(by_node::exscan(call, nodes, input, output, op)).await;
    }
    exscan_plain(call, input, output, op).await
}

/// As [`exscan`], without grouping the ranks by node.
pub(super) async fn exscan_plain<V: Visit>(
    call: &CollectiveCall<V>,
    input: UserMemory,
    output: UserMemory,
    op: &impl Reducer,
) -> Result<(), Error> {
    let shape = call.shape();
    if goes_along_chain(&shape, input.bytes(), call.size()) {
        return Box::pin(exscan_along_chain(call, input, output, op)).await;
    }
    let mut bytes = input.as_slice().to_vec();
    if let Some(board) = BoardCall::of(call, bytes.len(), shape.choice.scan.board()) {
        board.combine_first(&mut bytes, call.rank(), op).await?;
        if call.rank() > 0 {
            output.copy_from(UserMemory::of_const(&bytes));
        }
        return Ok(());
    }
    let before = Box::pin(before_in_rounds(call, &bytes, op)).await?;
    if let Some(before) = before {
        output.copy_from(UserMemory::of_const(&before));
    }
    Ok(())
}

/// The nodes of a call that goes by node; `None`: it does not. By default only small data do, because the ranks of a
/// node combine the data twice.
fn nodes_of<V: Visit>(call: &CollectiveCall<V>, bytes: usize) -> Option<Rc<CommNodes>> {
    let shape = call.shape();
    let applies = shape.choice.scan.by_node(by_node::combines(&shape, bytes));
    by_node::nodes_of(call, applies && bytes > 0).filter(|nodes| nodes.are_in_order())
}

/// Whether the call goes along a chain. In a chain each rank waits for the previous rank, so there are few messages but
/// many steps.
fn goes_along_chain(shape: &CollectiveTuning, bytes: usize, ranks: u32) -> bool {
    match shape.choice.scan {
        choice::Scan::Chain => true,
        choice::Scan::Auto | choice::Scan::Nodes if shape.flat && ranks > 2 => {
            bytes > shape.board_bytes
        }
        // The alternative are rounds. They send the data more often, by a factor that is logarithmic in the number of
        // ranks, but take fewer sequential steps.
        choice::Scan::Auto | choice::Scan::Nodes => {
            bytes > shape.board_bytes && bytes / PIECE_BYTES >= ranks as usize / 2
        }
        choice::Scan::Board | choice::Scan::Rounds => false,
    }
}

/// A scan along a chain: a rank sends its result to the next rank, piece by piece. It waits for these sends only at the
/// end, or when too many are in flight.
async fn scan_along_chain<V: Visit>(
    call: &CollectiveCall<V>,
    input: UserMemory,
    output: UserMemory,
    op: &impl Reducer,
) -> Result<(), Error> {
    let mut chain = Chain::of(call);
    if !chain.begin(input.bytes(), op.item_bytes()).await {
        return chain.give_up(input, op.item_bytes()).await;
    }
    let mut lower = Vec::new();
    for piece in pieces(input.bytes(), op.item_bytes()) {
        let mut sum = output.part(piece.clone());
        sum.copy_from(input.part(piece));
        if !chain.receive(&mut lower, sum.bytes()).await {
            break;
        }
        if !lower.is_empty() {
            op.reduce(&lower, sum.as_mut_slice());
        }
        chain.send(sum).await;
    }
    chain.end().await
}

/// An exscan along a chain: a rank's result is the combination that it receives, and it sends the combination that
/// includes its own data to the next rank.
async fn exscan_along_chain<V: Visit>(
    call: &CollectiveCall<V>,
    input: UserMemory,
    output: UserMemory,
    op: &impl Reducer,
) -> Result<(), Error> {
    // The memory of a piece is lent until the chain has waited for its send. The chain counts sends with a request, and
    // only the last piece can be so short that its send has none. So `AHEAD` buffers, used in turn, are enough.
    let mut sums = vec![Vec::new(); AHEAD];
    let mut chain = Chain::of(call);
    if !chain.begin(input.bytes(), op.item_bytes()).await {
        return chain.give_up(input, op.item_bytes()).await;
    }
    let mut lower = Vec::new();
    for (index, piece) in pieces(input.bytes(), op.item_bytes()).enumerate() {
        let own = input.part(piece.clone());
        if !chain.receive(&mut lower, own.bytes()).await {
            break;
        }
        if !chain.is_last() {
            chain.make_room().await;
            let sum = &mut sums[index % AHEAD];
            sum.clear();
            sum.extend_from_slice(own.as_slice());
            if !lower.is_empty() {
                op.reduce(&lower, sum);
            }
            chain.send(UserMemory::of(sum)).await;
        }
        if !lower.is_empty() {
            output.part(piece).copy_from(UserMemory::of_const(&lower));
        }
    }
    chain.end().await
}

/// A rank's part in a chain. Even after an error it waits for the messages that it has sent, because their memory is
/// lent until they complete.
struct Chain<'a, V> {
    call: &'a CollectiveCall<V>,
    sent: PendingMessages<'a, V>,
    ended: Result<(), Error>,
}

impl<'a, V: Visit> Chain<'a, V> {
    fn of(call: &'a CollectiveCall<V>) -> Self {
        Self {
            call,
            sent: call.pending(),
            ended: Ok(()),
        }
    }

    fn is_last(&self) -> bool {
        self.call.rank() + 1 == self.call.size()
    }

    /// Sends to the next rank the number of bytes that will follow, and receives that number from the previous rank.
    /// `false`: the lengths differ, or the previous rank is dead. If they differ, records an error, and receives and
    /// drops the previous rank's messages, so that no rank waits for ever. Data of at most one piece need no
    /// announcement.
    async fn begin(&mut self, bytes: usize, item_bytes: usize) -> bool {
        if bytes <= PIECE_BYTES {
            return true;
        }
        if !self.is_last() {
            let word = (bytes as u64).to_ne_bytes();
            self.ended = self.call.send(self.call.rank() + 1, &word).await;
        }
        let mut word = Vec::new();
        if !self.receive(&mut word, 8).await {
            return false;
        }
        let Ok(word) = <[u8; 8]>::try_from(word) else {
            return true;
        };
        let given = u64::from_ne_bytes(word);
        let expected = bytes as u64;
        if given == expected {
            return true;
        }
        self.call.note(Error::Unequal { given, expected });
        let mut taken = Vec::new();
        for piece in pieces(usize::try_from(given).unwrap_or(0), item_bytes) {
            if !self.receive(&mut taken, piece.len()).await {
                break;
            }
        }
        false
    }

    /// Sends `input` to the next rank in place of a result, because that rank waits for as many bytes; then ends the
    /// call.
    async fn give_up(mut self, input: UserMemory, item_bytes: usize) -> Result<(), Error> {
        if self.ended.is_ok() {
            for piece in pieces(input.bytes(), item_bytes) {
                self.send(input.part(piece)).await;
            }
        }
        self.end().await
    }

    /// Receives from the previous rank; the first rank receives nothing. `false`: the previous rank is dead.
    async fn receive(&mut self, lower: &mut Vec<u8>, bytes: usize) -> bool {
        let Some(before) = self.call.rank().checked_sub(1) else {
            return true;
        };
        lower.resize(bytes, 0);
        let received = self.call.receive(before, lower).await;
        let is_received = received.is_ok();
        if !is_received {
            self.sent.take_back();
            self.ended = received;
        }
        is_received
    }

    /// Sends to the next rank, if there is one.
    async fn send(&mut self, bytes: UserMemory) {
        if !self.is_last() {
            self.make_room().await;
            self.sent.send(self.call.rank() + 1, bytes.as_slice());
        }
    }

    /// If [`AHEAD`] pieces or more may be in flight, waits for all of them.
    async fn make_room(&mut self) {
        if self.sent.count() >= AHEAD {
            let sent = std::mem::replace(&mut self.sent, self.call.pending());
            let ended = sent.finish().await;
            self.ended = std::mem::replace(&mut self.ended, Ok(())).and(ended);
        }
    }

    async fn end(self) -> Result<(), Error> {
        let sent = self.sent.finish().await;
        self.ended.and(sent)
    }
}

/// The pieces in which `bytes` bytes are sent. No piece ends inside an item. There is at least one piece, even for no
/// data.
fn pieces(bytes: usize, item_bytes: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let item = item_bytes.max(1);
    let piece = (PIECE_BYTES / item).max(1) * item;
    let count = bytes.div_ceil(piece).max(1);
    (0..count).map(move |at| at * piece..bytes.min((at + 1) * piece))
}

/// Combines the bytes of all lower ranks by recursive doubling; `None` at rank 0. `bytes`: those of this rank.
async fn before_in_rounds<V: Visit>(
    call: &CollectiveCall<V>,
    bytes: &[u8],
    op: &impl Reducer,
) -> Result<Option<Vec<u8>>, Error> {
    let (rank, size) = (call.rank(), call.size());
    // The combination of consecutive ranks, the last of which is this rank.
    let mut partial = bytes.to_vec();
    let mut before: Option<Vec<u8>> = None;
    let mut span = 1;
    while span < size {
        let mut lower = vec![0u8; bytes.len()];
        let mut pending = call.pending();
        if rank >= span {
            pending.receive(rank - span, &mut lower);
        }
        if rank + span < size {
            pending.send(rank + span, &partial);
        }
        pending.finish().await?;
        if rank >= span {
            op.reduce(&lower, &mut partial);
            match &mut before {
                Some(before) => op.reduce(&lower, before),
                none => *none = Some(lower),
            }
        }
        span <<= 1;
    }
    Ok(before)
}

/// Maximum number of bytes of a piece, unless one item has more.
const PIECE_BYTES: usize = 64 << 10;
/// Maximum number of pieces that a rank has in flight.
const AHEAD: usize = 8;
