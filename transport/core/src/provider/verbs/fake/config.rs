// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a fake network does, and what it counts.

use crate::provider::sim::SimRandom;

/// What a fake network does to packets, ports and processes, and what its ports can do. Times are in simulated nanoseconds.
///
/// Datagrams are lost, doubled and reordered for all to see; packets of reliable queue pairs are repeated by the device,
/// so that a loss is only time, until it happens eight times in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FakeConfig {
    /// Where all chance comes from.
    pub seed: u64,
    /// Shortest way of a packet.
    pub least_delay_ns: u64,
    /// Longest way of a packet; whatever is between the two reorders datagrams.
    pub most_delay_ns: u64,
    /// Datagrams lost, of 1000.
    pub loss_permille: u32,
    /// Datagrams delivered twice, of 1000.
    pub duplicate_permille: u32,
    /// Packets of reliable queue pairs lost, of 1000; below 500, or hardly any work ends well.
    pub pair_loss_permille: u32,
    /// Work requests with which a reliable queue pair breaks, of 1000: half of them carried out before, half not.
    pub break_permille: u32,
    /// Reads that end well and bring nothing, of 1000; their queue pair breaks over them, as that of Soft-RoCE does when
    /// a part of the answer is lost. Not 0: the device is known for it.
    pub lie_permille: u32,
    /// The device says that the kernel plays it.
    pub in_software: bool,
    /// How long a reliable queue pair waits for an answer before it repeats what it sent, where it was told 14 (67 ms on real
    /// devices); twice as long where it was told 15.
    pub answer_ns: u64,
    /// How long it waits when the other side had no buffer.
    pub not_ready_ns: u64,
    /// Longest time that a process spends off its processor; 0 for never.
    pub most_away_ns: u64,
    /// Share of the time that it does so, of 1000; at most 900.
    pub away_permille: u32,
    /// Longest time that a port is down; 0 for never.
    pub most_down_ns: u64,
    /// Share of the time that it is so, of 1000; at most 900.
    pub down_permille: u32,
    /// InfiniBand, where ports are found by their LID; else Ethernet, where it is the GID.
    pub infiniband: bool,
    /// Bytes of one packet, a power of two from 256 to 4096.
    pub packet_bytes: u32,
    /// Bytes of a packet that the network carries; longer ones are lost. 0: as many as the ports.
    pub way_bytes: u32,
    /// Most bytes that travel inside a work request.
    pub inline_bytes: u32,
    /// Most bytes of one work request.
    pub message_bytes: u64,
    /// Reads and atomics that one queue pair has under way; 0: there are none.
    pub reads: u8,
    /// Whether there are atomics.
    pub atomics: bool,
    /// Most work requests of one reliable queue pair, whatever a port is opened with.
    pub most_sends: u32,
    /// Most datagrams under way, likewise.
    pub most_datagrams: u32,
    /// Most buffers in the shared receive queue, likewise: few of them make a device that is often not ready.
    pub most_shared: u32,
    /// Most buffers for datagrams, likewise.
    pub most_datagram_buffers: u32,
    /// Reliable queue pairs that one port makes.
    pub most_pairs: u32,
    /// Bytes that the process of a port may register (`RLIMIT_MEMLOCK`).
    pub most_memory_bytes: u64,
    /// Whether the number of a queue pair that is gone goes to the next one at once.
    pub reuse_numbers: bool,
    /// Number of the first packet in every stream of the provider.
    pub first_packet: u32,
}

impl FakeConfig {
    /// Whether the network carries a packet of so many bytes.
    pub(super) fn carries(&self, bytes: u64) -> bool {
        self.way_bytes == 0 || bytes <= self.way_bytes.into()
    }

    /// A network on which nothing goes wrong, of devices like Soft-RoCE.
    #[must_use]
    pub fn calm(seed: u64) -> Self {
        Self {
            seed,
            least_delay_ns: 1_000,
            most_delay_ns: 1_000,
            loss_permille: 0,
            duplicate_permille: 0,
            pair_loss_permille: 0,
            break_permille: 0,
            lie_permille: 0,
            in_software: false,
            answer_ns: 67_108_864,
            not_ready_ns: 640_000,
            most_away_ns: 0,
            away_permille: 0,
            most_down_ns: 0,
            down_permille: 0,
            infiniband: false,
            packet_bytes: 1024,
            way_bytes: 0,
            inline_bytes: 512,
            message_bytes: 1 << 31,
            reads: 16,
            atomics: true,
            most_sends: u32::MAX,
            most_datagrams: u32::MAX,
            most_shared: u32::MAX,
            most_datagram_buffers: u32::MAX,
            most_pairs: u32::MAX,
            most_memory_bytes: u64::MAX,
            reuse_numbers: false,
            first_packet: 0,
        }
    }

    /// A network whose troubles are drawn from the seed: some seeds lose a third of all datagrams, on some the queue pairs
    /// break all the time, on some the ports go down and come back at another place of their table, some do all of it.
    #[must_use]
    pub fn harsh(seed: u64) -> Self {
        let mut random = SimRandom::new(seed ^ 0xfa4e_d0e5_0f7a_11b1);
        let mut some = |most: u64| {
            let severe = random.below(3);
            random.below(1 + most * severe / 2)
        };
        let narrow = |draw: u64| u32::try_from(draw).unwrap_or(0);
        let few = |draw: u64, least: u32| match draw {
            0 => u32::MAX,
            draw => least + narrow(draw),
        };
        let answer_ns = 40_000 + some(500_000);
        let mut config = Self {
            most_delay_ns: 1_000 + some(30_000),
            loss_permille: narrow(some(350)),
            duplicate_permille: narrow(some(300)),
            pair_loss_permille: narrow(some(150)),
            break_permille: narrow(some(60)),
            answer_ns,
            not_ready_ns: 2_000 + some(20_000),
            // A process that starves makes others run into their limits; a port that is down for less than eight
            // waits for an answer is only slow.
            most_away_ns: match some(600_000) {
                0 => 0,
                time => time.max(2_000),
            },
            away_permille: narrow(some(500)),
            // A port that goes up and down all the time does nothing else.
            most_down_ns: match some(20 * answer_ns) {
                0 => 0,
                time => time.max(20_000),
            },
            down_permille: narrow(some(200)),
            infiniband: some(4) == 1,
            packet_bytes: 256 << narrow(some(4)),
            inline_bytes: narrow(some(3)) * 64,
            reads: u8::try_from(1 + some(15)).unwrap_or(1),
            most_sends: few(some(30), 1),
            most_datagrams: few(some(30), 1),
            most_shared: few(some(30), 1),
            most_datagram_buffers: few(some(30), 1),
            most_pairs: few(some(8), 1),
            reuse_numbers: some(2) == 1,
            // All streams come to their largest number soon.
            first_packet: u32::MAX - narrow(some(60)),
            lie_permille: narrow(some(100)),
            ..Self::calm(seed)
        };
        if config.most_sends == 1 {
            // What tells of a lie needs a place behind it.
            config.lie_permille = 0;
        }
        // The device that lies is one that the kernel plays.
        config.in_software = config.lie_permille != 0;
        config
    }
}

/// What one port of a fake network did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FakeStats {
    /// Calls that rang the device's bell, whatever number of work requests they brought.
    pub doorbells: u64,
    /// Work requests taken by reliable queue pairs.
    pub work_requests: u64,
    /// Those of them, and datagrams, that asked to be told their end.
    pub signaled: u64,
    /// Completions of sends that were taken, and of receives.
    pub send_completions: u64,
    /// Completions of receives that were taken.
    pub receive_completions: u64,
    /// Messages that reliable queue pairs delivered, and their bytes, counted where they were sent.
    pub messages: u64,
    /// Bytes of them.
    pub message_bytes: u64,
    /// Reads that ended well.
    pub reads: u64,
    /// Bytes of them.
    pub read_bytes: u64,
    /// Reads that were said to have ended well, but brought nothing.
    pub lies: u64,
    /// Writes that ended well.
    pub writes: u64,
    /// Bytes of them.
    pub write_bytes: u64,
    /// Atomics that ended well.
    pub atomics: u64,
    /// Datagrams sent.
    pub datagrams: u64,
    /// Bytes of them.
    pub datagram_bytes: u64,
    /// Datagrams of this port that the network lost, a port that was down or nobody's address included.
    pub datagrams_lost: u64,
    /// Datagrams of this port that the network doubled.
    pub datagrams_doubled: u64,
    /// Datagrams that arrived here before one that the same port had sent earlier.
    pub datagrams_overtaken: u64,
    /// Datagrams that arrived here while no buffer was there.
    pub datagrams_without_buffer: u64,
    /// Datagrams that arrived here with another number or Q_Key, or longer than this port's packets.
    pub datagrams_foreign: u64,
    /// Packets of reliable queue pairs of this port that the network lost, or that nobody was there to take.
    pub packets_lost: u64,
    /// Times that a reliable queue pair sent again what was lost, or whose answer was.
    pub repeats: u64,
    /// Times that a message came and the shared receive queue was empty.
    pub not_ready: u64,
    /// Reliable queue pairs of this port that broke, those that were told to included.
    pub broken: u64,
    /// Posts of all kinds that found less room than they wanted.
    pub full: u64,
    /// Posts and calls that no device would take at any time: too long, not connected, unaligned, a way that was closed
    /// under its datagrams. A caller that makes one has a fault.
    pub wrong: u64,
    /// Completions that found no room: another fault of the caller.
    pub overruns: u64,
    /// Buffers of the shared receive queue whose completions went away with their queue pair: one more.
    pub buffers_lost: u64,
    /// Times that completions were armed.
    pub arms: u64,
    /// Signs given for completions.
    pub signs: u64,
    /// Times that the process slept as long as it may, since nothing woke it.
    pub overslept: u64,
    /// Times that the process was taken off its processor.
    pub away: u64,
    /// Times that the port went down.
    pub down: u64,
    /// Regions that were ever registered.
    pub registered: u64,
    /// Regions that are registered now.
    pub regions: u64,
    /// Bytes of them.
    pub region_bytes: u64,
    /// Reliable queue pairs that are there now.
    pub pairs: u64,
    /// Ways for datagrams that are open now.
    pub handles: u64,
}
