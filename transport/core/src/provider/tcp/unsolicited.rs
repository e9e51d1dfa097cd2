// SPDX-License-Identifier: MIT OR Apache-2.0
//! Data that are sent with the frame that announces them, before the peer requests them: if the peer's receive is
//! posted already, that saves a round trip. The peer posts a read as for other data; if the data have arrived or are in
//! flight, no request is sent. Data that arrive before their read are kept, up to [`KEPT_BYTES`] for all peers. Beyond
//! that, data are dropped, their sender gets a DECLINED, and the read requests them again.
//!
//! The key in such an announcement was made for this memory only, is announced once, and the memory is not changed
//! while the key is valid. So the data kept for a key are those that a read would return.

use std::collections::{BTreeMap, HashMap};

use super::links::TcpLinks;
use super::memory::MemoryRange;
use super::packet::{MOST_UNSOLICITED_BYTES, TcpPacketBuilder, TcpPacketKind};
use super::sockets::Sockets;
use super::transfers::{Serve, TcpTransfers};
use crate::{RemoteKey, WorkOutcome};

/// Data that peers have announced and this process has not read.
#[derive(Debug, Default)]
pub(super) struct Unsolicited {
    all: HashMap<(u32, RemoteKey), AnnouncedData>,
    /// The entries whose data are kept, oldest first.
    kept: BTreeMap<u64, (u32, RemoteKey)>,
    kept_bytes: usize,
    last: u64,
}

/// Announced data, which arrive unsolicited.
#[derive(Debug, Default)]
struct AnnouncedData {
    target: AnnouncedTarget,
    has_come: bool,
    /// The turn in which the announcement arrived.
    turn: u64,
}

/// Target of unsolicited data.
#[derive(Debug, Default)]
enum AnnouncedTarget {
    /// None yet: nothing has arrived, and there is no read.
    #[default]
    None,
    /// The lease of this read.
    Read(u32),
    /// There is no read yet: the arrived bytes are kept in `bytes`.
    Kept {
        bytes: Vec<u8>,
        place: u64,
        since_ns: u64,
    },
    /// The data are dropped.
    Dropped,
}

impl Unsolicited {
    /// Makes room for this many bytes, by dropping data that were not read for long. `false`: there is not enough room.
    fn make_room(&mut self, bytes: usize, now_ns: u64) -> bool {
        while self.kept_bytes + bytes > KEPT_BYTES {
            // Incomplete data are not dropped, and may stay for long: each peer has at most one such entry.
            let has_come = |name: &&_| self.all.get(name).is_some_and(|it| it.has_come);
            let Some(&oldest) = self.kept.values().find(has_come) else {
                return false;
            };
            let Some(AnnouncedTarget::Kept { since_ns, .. }) =
                self.all.get(&oldest).map(|it| &it.target)
            else {
                return false;
            };
            if now_ns.saturating_sub(*since_ns) <= OLD_NS {
                return false;
            }
            self.forget(oldest);
        }
        true
    }

    /// Removes an entry.
    fn forget(&mut self, name: (u32, RemoteKey)) {
        if let Some(announced) = self.all.remove(&name) {
            self.free_target(name, &announced.target);
        }
    }

    /// Frees the memory of a target.
    fn free_target(&mut self, (_, key): (u32, RemoteKey), target: &AnnouncedTarget) {
        if let AnnouncedTarget::Kept { place, .. } = target {
            self.kept.remove(place);
            self.kept_bytes -= cost_of(key);
        }
    }

    /// Memory used, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.kept_bytes + self.all.capacity() * size_of::<((u32, RemoteKey), AnnouncedData)>()
    }
}

/// Sending.
impl TcpTransfers {
    /// Whether the data of an announcement are sent with it.
    pub(super) fn may_go_unsolicited<S: Sockets>(
        &mut self,
        links: &TcpLinks<S>,
        peer: u32,
        key: RemoteKey,
    ) -> bool {
        let is_fit = (1..=MOST_UNSOLICITED_BYTES as u64).contains(&key.bytes);
        // Data that may go over several connections are not sent unsolicited, since pieces are requested over each
        // connection.
        let limits = &links.limits;
        let is_shared = limits.rails > 1 && key.bytes >= limits.shared_bytes;
        if !is_fit || is_shared {
            return false;
        }
        let queue = self.queue(peer);
        let may_go = queue.bare_announcements == 0 && queue.unsolicited < MOST_ANNOUNCED;
        may_go && self.exports.may_announce(peer, key)
    }

    /// Counts an announcement that is sent without its data.
    pub(super) fn count_bare_announcement(&mut self, peer: u32) {
        let queue = self.queue(peer);
        queue.bare_announcements = queue.bare_announcements.saturating_sub(1);
    }

    /// Queues announced data.
    pub(super) fn send_unsolicited<S: Sockets>(
        &mut self,
        links: &mut TcpLinks<S>,
        peer: u32,
        key: RemoteKey,
    ) {
        self.exports.announce(peer, key);
        self.serving += 1;
        let queue = self.queue(peer);
        queue.unsolicited += 1;
        queue.serves.push_back(Serve::Unsolicited(key));
        self.go_on(links, peer);
        links.flush(peer);
    }

    /// Puts announced data into a packet, which contains no data if the key was withdrawn.
    pub(super) fn cut_unsolicited<S: Sockets>(
        &mut self,
        links: &mut TcpLinks<S>,
        peer: u32,
        key: RemoteKey,
    ) {
        self.serving -= 1;
        self.queue(peer).unsolicited -= 1;
        let data = self.exports.find(peer, key, 0, key.bytes);
        let make = |bytes: &mut Vec<u8>| TcpPacketBuilder::new(bytes).unsolicited(key);
        let export = data.map(|_| key.check);
        let slot = links
            .store
            .keep(TcpPacketKind::Unsolicited, make, data, export);
        links.post(peer, slot);
    }

    /// Handles a DECLINED: the peer has dropped unsolicited data, so the next [`BARE_ANNOUNCEMENTS`] announcements go
    /// without data.
    pub(super) fn handle_declined(&mut self, peer: u32) {
        self.queue(peer).bare_announcements = BARE_ANNOUNCEMENTS;
    }
}

/// Receiving. `false`: a protocol violation.
impl TcpTransfers {
    /// Records an announcement, whose data will follow.
    pub(super) fn handle_announcement<S: Sockets>(
        &mut self,
        links: &mut TcpLinks<S>,
        peer: u32,
        key: RemoteKey,
    ) -> bool {
        let is_fit = (1..=MOST_UNSOLICITED_BYTES as u64).contains(&key.bytes);
        let is_new = !self.unsolicited.all.contains_key(&(peer, key));
        let queue = self.queue(peer);
        if !is_fit || !is_new || queue.announced >= MOST_ANNOUNCED {
            return false;
        }
        queue.announced += 1;
        let announced = AnnouncedData {
            turn: links.turn,
            ..AnnouncedData::default()
        };
        self.unsolicited.all.insert((peer, key), announced);
        let side = links.of(peer);
        side.expect(is_large(key));
        side.announces = true;
        true
    }

    /// Whether the data have to wait until the caller has received the announcement: the caller may then post a read
    /// for the data. Small data do not wait: processing many messages in one turn saves more than a copy costs.
    pub(super) fn has_to_be_seen_first<S: Sockets>(
        &self,
        links: &TcpLinks<S>,
        peer: u32,
        key: RemoteKey,
    ) -> bool {
        let announced = self.unsolicited.all.get(&(peer, key));
        key.bytes > COPIED_BYTES && announced.is_some_and(|announced| announced.turn == links.turn)
    }

    /// Handles the start of the packet with announced data, of which it contains `bytes` bytes.
    pub(super) fn begin_unsolicited<S: Sockets>(
        &mut self,
        links: &TcpLinks<S>,
        peer: u32,
        key: RemoteKey,
        bytes: usize,
    ) -> bool {
        let name = (peer, key);
        let Some(announced) = self.unsolicited.all.get_mut(&name) else {
            return false;
        };
        let fits = bytes == 0 || bytes == bytes_of(key);
        if announced.has_come || !fits {
            return false;
        }
        match &mut announced.target {
            // A packet with these data had begun before, over a connection that broke.
            AnnouncedTarget::Kept { bytes, .. } => bytes.clear(),
            AnnouncedTarget::None => {
                let now_ns = links.now_ns;
                let has_room = self.unsolicited.make_room(cost_of(key), now_ns);
                self.keep_unsolicited(name, has_room, now_ns);
            }
            AnnouncedTarget::Read(_) | AnnouncedTarget::Dropped => {}
        }
        true
    }

    fn keep_unsolicited(&mut self, name: (u32, RemoteKey), has_room: bool, now_ns: u64) {
        let table = &mut self.unsolicited;
        let Some(announced) = table.all.get_mut(&name) else {
            return;
        };
        announced.target = AnnouncedTarget::Dropped;
        if has_room {
            table.last += 1;
            table.kept.insert(table.last, name);
            table.kept_bytes += cost_of(name.1);
            announced.target = AnnouncedTarget::Kept {
                bytes: Vec::with_capacity(bytes_of(name.1)),
                place: table.last,
                since_ns: now_ns,
            };
        }
    }

    /// The target of announced data, if a read waits for them.
    pub(super) fn place_unsolicited(&mut self, peer: u32, key: RemoteKey) -> Option<MemoryRange> {
        let announced = self.unsolicited.all.get(&(peer, key))?;
        match announced.target {
            AnnouncedTarget::Read(id) => self.works.place(peer, id, 0, bytes_of(key)),
            _ => None,
        }
    }

    /// Stores some announced data for which no read waits.
    pub(super) fn take_unsolicited(&mut self, peer: u32, key: RemoteKey, some: &[u8]) {
        let announced = self.unsolicited.all.get_mut(&(peer, key));
        if let Some(AnnouncedTarget::Kept { bytes, .. }) = announced.map(|it| &mut it.target) {
            let room = bytes_of(key).saturating_sub(bytes.len());
            bytes.extend_from_slice(&some[..some.len().min(room)]);
        }
    }

    /// Handles that all bytes of the packet with announced data have arrived.
    pub(super) fn end_unsolicited<S: Sockets>(
        &mut self,
        links: &mut TcpLinks<S>,
        peer: u32,
        key: RemoteKey,
        bytes: usize,
    ) {
        let name = (peer, key);
        let Some(announced) = self.unsolicited.all.get_mut(&name) else {
            return;
        };
        announced.has_come = true;
        links.of(peer).expect_no_more(is_large(key));
        links.counts.moved_bytes.add(bytes as u64);
        let read = match announced.target {
            AnnouncedTarget::Read(id) => Some(id),
            _ => None,
        };
        let is_kept = matches!(announced.target, AnnouncedTarget::Kept { .. }) && bytes != 0;
        let is_dropped = matches!(announced.target, AnnouncedTarget::Dropped);
        let queue = self.queue(peer);
        queue.announced -= 1;
        queue.declines |= is_dropped;
        if !is_kept {
            self.unsolicited.forget(name);
        }
        if let Some(id) = read {
            let outcome = if bytes == 0 {
                WorkOutcome::BadKey
            } else {
                WorkOutcome::Done
            };
            self.end(links, id, outcome);
        }
    }

    /// Serves a posted read from announced data. `true`: the data have arrived and the read has ended, or they are in
    /// flight. `false`: the data must be requested.
    pub(super) fn read_unsolicited<S: Sockets>(
        &mut self,
        links: &mut TcpLinks<S>,
        peer: u32,
        id: u32,
    ) -> bool {
        if self.unsolicited.all.is_empty() {
            return false;
        }
        let Some(work) = self.works.find(peer, id) else {
            return false;
        };
        let name = (peer, work.key);
        let is_whole = work.offset == 0 && work.bytes() == work.key.bytes;
        let Some(announced) = self.unsolicited.all.get_mut(&name).filter(|_| is_whole) else {
            return false;
        };
        match &announced.target {
            AnnouncedTarget::None => announced.target = AnnouncedTarget::Read(id),
            AnnouncedTarget::Kept { bytes, .. } => {
                work.stretch(0, bytes.len()).fill(bytes);
                let has_come = announced.has_come;
                let was = std::mem::replace(&mut announced.target, AnnouncedTarget::Read(id));
                self.unsolicited.free_target(name, &was);
                if has_come {
                    self.unsolicited.forget(name);
                    self.end(links, id, WorkOutcome::Done);
                }
            }
            AnnouncedTarget::Read(_) | AnnouncedTarget::Dropped => return false,
        }
        true
    }

    /// Drops data that will not be read.
    pub(super) fn decline_unsolicited<S: Sockets>(
        &mut self,
        links: &mut TcpLinks<S>,
        peer: u32,
        key: RemoteKey,
    ) {
        let name = (peer, key);
        let Some(announced) = self.unsolicited.all.get_mut(&name) else {
            return;
        };
        if announced.has_come {
            self.unsolicited.forget(name);
            self.queue(peer).declines = true;
            self.go_on(links, peer);
        } else if !matches!(announced.target, AnnouncedTarget::Read(_)) {
            let was = std::mem::replace(&mut announced.target, AnnouncedTarget::Dropped);
            self.unsolicited.free_target(name, &was);
        }
    }

    /// Drops the data of a lost peer.
    pub(super) fn forget_unsolicited_of(&mut self, peer: u32) {
        let of_peer = self.unsolicited.all.keys().filter(|(of, _)| *of == peer);
        for name in of_peer.copied().collect::<Vec<_>>() {
            self.unsolicited.forget(name);
        }
    }
}

fn is_large(key: RemoteKey) -> bool {
    bytes_of(key) > super::packet::MOST_FRAME_BYTES
}

/// Length of announced data; at most [`MOST_UNSOLICITED_BYTES`], as announcements are checked for that.
fn bytes_of(key: RemoteKey) -> usize {
    usize::try_from(key.bytes).map_or(MOST_UNSOLICITED_BYTES, |bytes| {
        bytes.min(MOST_UNSOLICITED_BYTES)
    })
}

/// The size that is accounted for kept data, with their bookkeeping.
fn cost_of(key: RemoteKey) -> usize {
    bytes_of(key) + ENTRY_BYTES
}

/// Approximate size of the bookkeeping.
const ENTRY_BYTES: usize = 256;
/// Maximum number of announcements of one process to another whose data have not followed.
const MOST_ANNOUNCED: u32 = 64;
/// Maximum number of bytes of kept data.
pub(super) const KEPT_BYTES: usize = 4 << 20;
/// Data of up to this many bytes do not wait until the caller has received the announcement.
const COPIED_BYTES: u64 = 32 << 10;
/// Data that were not read for this time may be dropped for others.
const OLD_NS: u64 = 1_000_000_000;
/// Number of announcements that are sent without data after a DECLINED.
const BARE_ANNOUNCEMENTS: u32 = 64;

#[cfg(test)]
impl Unsolicited {
    /// Number of entries with kept data.
    pub(super) fn kept(&self) -> usize {
        assert_eq!(self.kept.is_empty(), self.kept_bytes == 0);
        self.kept.len()
    }
}

#[cfg(test)]
impl TcpTransfers {
    /// Whether announced data of a peer have not arrived.
    pub(super) fn is_any_expected(&self, peer: u32) -> bool {
        self.find_queue(peer)
            .is_some_and(|queue| queue.announced != 0)
    }
}
