// SPDX-License-Identifier: MIT OR Apache-2.0
//! Configuration and counters of a simulated network.

use crate::provider::sim::SimRandom;

/// Faults and limits of a simulated network and its ports. Times are in simulated nanoseconds.
///
/// Lost, duplicated and reordered datagrams are visible to the processes; packets of reliable queue pairs are
/// retransmitted by the device, so a loss only costs time, unless the same packet is lost eight times in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FakeConfig {
    /// Seed of the random numbers.
    pub seed: u64,
    /// Smallest delay of a packet.
    pub least_delay_ns: u64,
    /// Largest delay of a packet; different delays reorder datagrams.
    pub most_delay_ns: u64,
    /// Datagrams lost, per 1000.
    pub loss_permille: u32,
    /// Datagrams delivered twice, per 1000.
    pub duplicate_permille: u32,
    /// Packets of reliable queue pairs lost, per 1000; from 500 on, queue pairs keep breaking.
    pub pair_loss_permille: u32,
    /// Work requests that break a reliable queue pair, per 1000; half of these requests are carried out first.
    pub break_permille: u32,
    /// Reads that complete successfully without data, per 1000. The queue pair then breaks, as with Soft-RoCE when a
    /// part of the response is lost. If this is not 0, the device reports unreliable reads.
    pub empty_read_permille: u32,
    /// Whether the device reports that the kernel implements it in software.
    pub in_software: bool,
    /// Time that a reliable queue pair waits for an answer before it retransmits, with a timeout exponent of 14 (67 ms
    /// on real devices); twice as long with 15.
    pub answer_ns: u64,
    /// Delay before a retransmission when the peer had no buffer.
    pub not_ready_ns: u64,
    /// Longest time that a process is off its processor; 0: never.
    pub most_away_ns: u64,
    /// Share of time that a process is off its processor, per 1000; at most 900.
    pub away_permille: u32,
    /// Longest time that a port is down; 0: never.
    pub most_down_ns: u64,
    /// Share of time that a port is down, per 1000; at most 900.
    pub down_permille: u32,
    /// Whether the network is InfiniBand, with ports addressed by LID; otherwise it is Ethernet, with ports addressed
    /// by GID.
    pub infiniband: bool,
    /// MTU of the ports in bytes, a power of two from 256 to 4096.
    pub packet_bytes: u32,
    /// MTU of the network in bytes; longer packets are lost. 0: as large as that of the ports.
    pub network_mtu_bytes: u32,
    /// Largest inline body, in bytes.
    pub inline_bytes: u32,
    /// Largest message, in bytes.
    pub message_bytes: u64,
    /// Maximum number of reads and atomics in flight on one queue pair; 0: not supported.
    pub reads: u8,
    /// Whether atomics are supported.
    pub atomics: bool,
    /// Limit of a reliable queue pair's send queue depth.
    pub most_sends: u32,
    /// Limit of the datagram send queue depth.
    pub most_datagrams: u32,
    /// Limit of the shared receive queue depth. With a small limit, the device often has no receive buffer.
    pub most_shared: u32,
    /// Limit of the datagram receive queue depth.
    pub most_datagram_buffers: u32,
    /// Maximum number of reliable queue pairs of one port.
    pub most_pairs: u32,
    /// Bytes that the process of a port may register (`RLIMIT_MEMLOCK`).
    pub most_memory_bytes: u64,
    /// Whether the number of a destroyed queue pair is reused immediately.
    pub reuse_numbers: bool,
    /// First packet number of every stream of the provider.
    pub first_packet: u32,
}

impl FakeConfig {
    /// Whether the network carries a packet of `bytes` bytes.
    pub(super) fn carries(&self, bytes: u64) -> bool {
        self.network_mtu_bytes == 0 || bytes <= self.network_mtu_bytes.into()
    }

    /// A network without faults, whose ports are hardware adapters.
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
            empty_read_permille: 0,
            in_software: false,
            answer_ns: 67_108_864,
            not_ready_ns: 640_000,
            most_away_ns: 0,
            away_permille: 0,
            most_down_ns: 0,
            down_permille: 0,
            infiniband: false,
            packet_bytes: 1024,
            network_mtu_bytes: 0,
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

    /// A network with faults drawn from the seed. With some seeds up to a third of all datagrams are lost, with some
    /// the queue pairs keep breaking, with some the ports go down and come back with another GID index, and with some
    /// all of these faults happen.
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
            // Other processes may run into their limits while a process is suspended for so long.
            most_away_ns: match some(600_000) {
                0 => 0,
                time => time.max(2_000),
            },
            away_permille: narrow(some(500)),
            // Up to 20 answer timeouts: a port that is down for less than eight only delays packets.
            most_down_ns: match some(20 * answer_ns) {
                0 => 0,
                time => time.max(20_000),
            },
            // At most 200, since a port that is down most of the time would carry nothing.
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
            // The first packet number is so high that the packet numbers of all streams soon wrap around.
            first_packet: u32::MAX - narrow(some(60)),
            empty_read_permille: narrow(some(100)),
            ..Self::calm(seed)
        };
        if config.most_sends == 1 {
            // There are no empty reads then: the write that proves a read would need a second slot of the send queue.
            config.empty_read_permille = 0;
        }
        // Only devices that the kernel implements in software have unreliable reads.
        config.in_software = config.empty_read_permille != 0;
        config
    }
}

/// Counters of one port of a simulated network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FakeStats {
    /// Calls that rang the doorbell, independent of the number of work requests.
    pub doorbells: u64,
    /// Work requests taken by reliable queue pairs.
    pub work_requests: u64,
    /// Work requests and datagrams that were posted signaled.
    pub signaled: u64,
    /// Completions of sends that were polled.
    pub send_completions: u64,
    /// Completions of receives that were polled.
    pub receive_completions: u64,
    /// Messages delivered by reliable queue pairs, counted at the sender.
    pub messages: u64,
    /// Bytes of messages delivered by reliable queue pairs, counted at the sender.
    pub message_bytes: u64,
    /// Successful reads.
    pub reads: u64,
    /// Bytes of successful reads.
    pub read_bytes: u64,
    /// Reads that completed successfully without data.
    pub empty_reads: u64,
    /// Successful writes.
    pub writes: u64,
    /// Bytes of successful writes.
    pub write_bytes: u64,
    /// Successful atomics.
    pub atomics: u64,
    /// Datagrams sent.
    pub datagrams: u64,
    /// Bytes of datagrams sent.
    pub datagram_bytes: u64,
    /// Datagrams sent by this port that were lost, including those to a port that was down or to an unused address.
    pub datagrams_lost: u64,
    /// Datagrams sent by this port that were duplicated.
    pub datagrams_doubled: u64,
    /// Datagrams that arrived here after a datagram that the same port had sent later.
    pub datagrams_overtaken: u64,
    /// Datagrams that arrived here without a receive buffer.
    pub datagrams_without_buffer: u64,
    /// Datagrams that arrived here with a wrong queue pair number or Q_Key, or longer than this port's MTU.
    pub datagrams_foreign: u64,
    /// Packets that reliable queue pairs of this port sent and that were lost, or arrived at no queue pair.
    pub packets_lost: u64,
    /// Retransmissions of reliable queue pairs.
    pub repeats: u64,
    /// Messages that found the shared receive queue empty.
    pub not_ready: u64,
    /// Reliable queue pairs of this port that broke, including those moved to the error state by the caller.
    pub broken: u64,
    /// Posts of all kinds that found too little room.
    pub full: u64,
    /// Posts and calls that no device accepts: too long, not connected, unaligned, an address handle destroyed before
    /// its datagrams were sent. Each is an error of the caller.
    pub wrong: u64,
    /// Completion queues that were overrun: also an error of the caller.
    pub overruns: u64,
    /// Buffers of the shared receive queue whose completions were discarded with their queue pair: also an error of the
    /// caller.
    pub buffers_lost: u64,
    /// Times that the two completion queues were armed.
    pub arms: u64,
    /// Completion events raised.
    pub completion_events: u64,
    /// Times that a process without a deadline of its own slept as long as it may, because no event woke it.
    pub overslept: u64,
    /// Times that the process was taken off its processor.
    pub away: u64,
    /// Times that the port went down.
    pub down: u64,
    /// Regions ever registered.
    pub registered: u64,
    /// Regions registered now.
    pub regions: u64,
    /// Bytes registered now.
    pub region_bytes: u64,
    /// Existing reliable queue pairs.
    pub pairs: u64,
    /// Existing address handles.
    pub handles: u64,
}
