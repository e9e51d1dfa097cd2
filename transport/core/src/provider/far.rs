// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes of other jobs that are added after a fabric was opened, and that its network reaches.

use super::{Fabric, ForeignPeer};
use crate::peers::PeerRoute;
use crate::{Error, Peer};

impl Fabric {
    /// Adds a process of another job, which is reached over the network: a new peer, whose number follows the existing
    /// ones. The other process must add this process too, under the number [`ForeignPeer::source_number`]; packets that
    /// arrive before that are dropped, and sent again. `record` is the network record of the other process, as for
    /// [`set_peer_address`](Self::set_peer_address); if it is `None`, the record is [requested](Self::next_unresolved)
    /// when there is something to send.
    ///
    /// A fabric opens a network only if some process of its own job needs one; this call opens none.
    ///
    /// # Errors
    /// [`Error::Far`] if there is no network, or the key is invalid. Nothing was done then.
    pub fn add_far(&mut self, far: ForeignPeer, record: Option<&[u8]>) -> Result<Peer, Error> {
        let Some(net) = &mut self.net else {
            let why = "this process has opened no network, since all of its job share a node";
            return Err(Error::Far { why });
        };
        // If the highest bit of a key were set, a device would send the key of its own queue pair instead.
        if far.key >> 31 != 0 {
            let why = "the key of its network has more than 31 bits";
            return Err(Error::Far { why });
        }
        let peer = self.peers.add(PeerRoute::Net);
        self.later.make_room_for(&mut self.shm, self.peers.count());
        net.add_foreign(peer, far);
        if let Some(record) = record {
            net.set_peer_address(peer, record);
        }
        Ok(peer)
    }
}
