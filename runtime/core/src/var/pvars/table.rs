// SPDX-License-Identifier: MIT OR Apache-2.0
//! The only table of performance variables.

use std::sync::atomic::Ordering::Relaxed;

use channel::ChannelCounters;
use queue_layout::{COLLECTIVES, CommRow, EngineCounters, Queued, collective};
use transport::{FabricStats, NetStats};

use super::super::launch::{LaunchPhase, phase_ns};
use super::super::traffic::{PeerTraffic, traffic};
use super::{
    BUDGET, Category, PHASE, PHASES, PerformanceVariable, PvarClass, PvarNumber, PvarSource,
    Verbosity,
};

/// The part of the budget for unexpected data that is used, from 0 to 1, as the bits of a `double`.
fn budget_used(counters: &EngineCounters) -> u64 {
    let (kept, budget) = (counters.kept_bytes.get(), BUDGET.load(Relaxed));
    #[allow(clippy::cast_precision_loss, reason = "a share")]
    let share = match kept {
        0 => 0.0,
        _ => kept as f64 / budget as f64,
    };
    share.min(1.0).to_bits()
}

/// A counter of the transport between ranks of the node.
fn shm(number: fn(&FabricStats) -> u64) -> u64 {
    traffic().map_or(0, |traffic| number(&traffic.fabric().stats()))
}

/// A counter of the transport over a network.
fn net(number: fn(&(FabricStats, NetStats)) -> u64) -> u64 {
    traffic().map_or(0, |traffic| number(&traffic.fabric().net()))
}

/// A counter of channels.
fn channels(number: fn(&ChannelCounters) -> u64) -> u64 {
    traffic().map_or(0, |traffic| number(&traffic.channels()))
}

fn called(row: &CommRow, collective: usize) -> u64 {
    row.calls(collective).0.into()
}

fn active(row: &CommRow, collective: usize) -> u64 {
    row.calls(collective).1.into()
}

fn took(row: &CommRow, collective: usize) -> u64 {
    row.time_ns(collective)
}

const fn pvar(
    name: &'static str,
    (category, verbosity): (Category, Verbosity),
    class: PvarClass,
    source: PvarSource,
    text: &'static str,
) -> PerformanceVariable {
    PerformanceVariable {
        name,
        category,
        verbosity,
        class,
        kind: PvarNumber::Long,
        source,
        text,
    }
}

const PROCESS: (Category, Verbosity) = (Category::Process, Verbosity::UserBasic);
const LAUNCH: (Category, Verbosity) = (Category::Process, Verbosity::UserDetail);
const MESSAGES: (Category, Verbosity) = (Category::PointToPoint, Verbosity::UserBasic);
const PROTOCOL: (Category, Verbosity) = (Category::PointToPoint, Verbosity::TunerBasic);
const MEMORY: (Category, Verbosity) = (Category::Memory, Verbosity::TunerBasic);
const WAITING: (Category, Verbosity) = (Category::Waiting, Verbosity::UserDetail);
const NETWORK: (Category, Verbosity) = (Category::Network, Verbosity::TunerDetail);
const QMP: (Category, Verbosity) = (Category::Qmp, Verbosity::TunerDetail);
const CALLS: (Category, Verbosity) = (Category::Collectives, Verbosity::UserDetail);
const ACTIVE: (Category, Verbosity) = (Category::Collectives, Verbosity::TunerDetail);

macro_rules! calls {
    ($word:literal, $collective:literal) => {
        pvar(
            concat!("collective_", $word, "_calls"),
            CALLS,
            PvarClass::Counter,
            PvarSource::Comm(called, collective($collective)),
            concat!(
                "Calls of MPI_",
                $collective,
                " in the communicator that have begun."
            ),
        )
        .of(PvarNumber::Unsigned)
    };
}

macro_rules! active {
    ($word:literal, $collective:literal) => {
        pvar(
            concat!("collective_", $word, "_active"),
            ACTIVE,
            PvarClass::Level,
            PvarSource::Comm(active, collective($collective)),
            concat!(
                "Calls of MPI_",
                $collective,
                " in the communicator that have begun and not ended."
            ),
        )
        .of(PvarNumber::Unsigned)
    };
}

macro_rules! timed {
    ($word:literal, $collective:literal) => {
        pvar(
            concat!("collective_", $word, "_time"),
            CALLS,
            PvarClass::Timer,
            PvarSource::Comm(took, collective($collective)),
            concat!(
                "Seconds spent in calls of MPI_",
                $collective,
                " in the communicator that have ended. Calls are timed while a handle of one of these variables exists; \
                 a nonblocking call counts until it is complete."
            ),
        )
        .of(PvarNumber::Double)
    };
}

/// The table. A variable keeps its index, so new ones are added at the end. Counters of calls of a collective include
/// its nonblocking and persistent forms.
pub const PVARS: &[PerformanceVariable] = &[
    pvar(
        "process_phase",
        PROCESS,
        PvarClass::State,
        PvarSource::Process(|_| PHASE.load(Relaxed) as u64),
        "State of the process: before MPI is initialized, running, or finalized.",
    )
    .of(PvarNumber::Int(PHASES)),
    pvar(
        "communicators",
        PROCESS,
        PvarClass::Level,
        PvarSource::Process(|counters| counters.communicators.get()),
        "Communicators that the process has, including MPI_COMM_WORLD and MPI_COMM_SELF.",
    ),
    pvar(
        "communicators_high",
        PROCESS,
        PvarClass::HighWatermark,
        PvarSource::Extreme(|counters| &counters.communicators),
        "Maximum number of communicators that the process had at one time.",
    ),
    pvar(
        "communicators_made",
        PROCESS,
        PvarClass::Counter,
        PvarSource::Process(|counters| counters.communicators_made.get()),
        "Communicators that were created in the process, including MPI_COMM_WORLD and MPI_COMM_SELF.",
    ),
    pvar(
        "communicator_size",
        PROCESS,
        PvarClass::Size,
        PvarSource::Comm(|row, _| row.size_and_rank().0 as u64, 0),
        "Number of ranks of the communicator; of the local group in an intercommunicator.",
    )
    .of(PvarNumber::Unsigned),
    pvar(
        "communicator_rank",
        PROCESS,
        PvarClass::Generic,
        PvarSource::Comm(|row, _| row.size_and_rank().1 as u64, 0),
        "Rank of the process in the communicator; it never changes.",
    )
    .of(PvarNumber::Int(&[])),
    pvar(
        "unexpected_recvq_length",
        MESSAGES,
        PvarClass::Level,
        PvarSource::Process(|counters| counters.unexpected_length.get()),
        "Length of the queue of unexpected messages: messages that have arrived and that no receive has matched, in \
         all communicators, including internal messages of the library.",
    ),
    pvar(
        "unexpected_recvq_length_high",
        MESSAGES,
        PvarClass::HighWatermark,
        PvarSource::Extreme(|counters| &counters.unexpected_length),
        "Maximum length of the queue of unexpected messages, in messages, since the handle was allocated or reset.",
    ),
    pvar(
        "unexpected_recvq_length_low",
        MESSAGES,
        PvarClass::LowWatermark,
        PvarSource::Extreme(|counters| &counters.unexpected_length),
        "Minimum length of the queue of unexpected messages, in messages, since the handle was allocated or reset.",
    ),
    pvar(
        "unexpected_messages",
        MESSAGES,
        PvarClass::Counter,
        PvarSource::Process(|counters| counters.unexpected.get()),
        "Messages that arrived before a receive that matches them.",
    ),
    pvar(
        "MPI_T_UMQ_LENGTH",
        MESSAGES,
        PvarClass::Level,
        PvarSource::Queue(Queued::Unexpected),
        "Length of the communicator's queue of unexpected messages: messages that have arrived and that no receive \
         has matched, without those of collectives.",
    )
    .of(PvarNumber::Unsigned),
    pvar(
        "match_attempts",
        PROTOCOL,
        PvarClass::Aggregate,
        PvarSource::Process(|counters| counters.match_attempts.get()),
        "Number of receives and messages that were compared to find a match. If the process already waits for a \
         receive when its message arrives, nothing is searched or counted.",
    ),
    pvar(
        "rendezvous_sends",
        PROTOCOL,
        PvarClass::Counter,
        PvarSource::Process(|counters| counters.announced.get()),
        "Messages that were announced before their data were transferred, because they are large or synchronous, or \
         because the receiver has asked for it.",
    ),
    pvar(
        "rendezvous_send_bytes",
        PROTOCOL,
        PvarClass::Aggregate,
        PvarSource::Process(|counters| counters.announced_bytes.get()),
        "Bytes of messages that were announced before their data were transferred.",
    ),
    pvar(
        "early_sends",
        PROTOCOL,
        PvarClass::Counter,
        PvarSource::Process(|counters| counters.early.get()),
        "Messages above the eager limit that were sent without waiting for their receive, in several parts \
         (RMPI_EARLY_LIMIT).",
    ),
    pvar(
        "early_send_bytes",
        PROTOCOL,
        PvarClass::Aggregate,
        PvarSource::Process(|counters| counters.early_bytes.get()),
        "Bytes of messages above the eager limit that were sent without waiting for their receive, in several parts \
         (RMPI_EARLY_LIMIT).",
    ),
    pvar(
        "gate_sends",
        PROTOCOL,
        PvarClass::Counter,
        PvarSource::Process(|counters| counters.gated.get()),
        "Messages of persistent sends that were written directly to the receive buffer, through a gate \
         (RMPI_PERSISTENT).",
    ),
    pvar(
        "gate_send_bytes",
        PROTOCOL,
        PvarClass::Aggregate,
        PvarSource::Process(|counters| counters.gated_bytes.get()),
        "Bytes of messages of persistent sends that were written directly to the receive buffer, through a gate \
         (RMPI_PERSISTENT).",
    ),
    pvar(
        "frames_refused",
        (Category::Network, Verbosity::DeveloperBasic),
        PvarClass::Counter,
        PvarSource::Process(|counters| counters.refused.get()),
        "Malformed frames (parts of messages), which were ignored. More than 0 indicates a defect in a program, a \
         library or a network.",
    ),
    pvar(
        "senders_throttled",
        MEMORY,
        PvarClass::Counter,
        PvarSource::Process(|counters| counters.throttles.get()),
        "Number of times that a sender was asked to announce its messages, because too many were unexpected.",
    ),
    pvar(
        "unexpected_recvq_buffer_size",
        MEMORY,
        PvarClass::Level,
        PvarSource::Process(|counters| counters.kept_bytes.get()),
        "Memory of unexpected messages in bytes: their data, and the overhead of each message.",
    ),
    pvar(
        "unexpected_recvq_buffer_size_high",
        MEMORY,
        PvarClass::HighWatermark,
        PvarSource::Extreme(|counters| &counters.kept_bytes),
        "Maximum memory of unexpected messages in bytes, since the handle was allocated or reset.",
    ),
    pvar(
        "unexpected_recvq_buffer_size_low",
        MEMORY,
        PvarClass::LowWatermark,
        PvarSource::Extreme(|counters| &counters.kept_bytes),
        "Minimum memory of unexpected messages in bytes, since the handle was allocated or reset.",
    ),
    pvar(
        "unexpected_budget",
        MEMORY,
        PvarClass::Size,
        PvarSource::Process(|_| BUDGET.load(Relaxed)),
        "Memory of unexpected messages, in bytes, above which senders are asked to announce \
         (RMPI_UNEXPECTED_BUDGET); 0 before MPI is initialized.",
    ),
    pvar(
        "unexpected_budget_used",
        MEMORY,
        PvarClass::Percentage,
        PvarSource::Process(budget_used),
        "Share of unexpected_budget that is in use, from 0 to 1; also 1 if more is in use.",
    )
    .of(PvarNumber::Double),
    calls!("barrier", "Barrier"),
    calls!("bcast", "Bcast"),
    calls!("allgather", "Allgather"),
    calls!("allgatherv", "Allgatherv"),
    calls!("allreduce", "Allreduce"),
    calls!("alltoall", "Alltoall"),
    calls!("alltoallv", "Alltoallv"),
    calls!("reduce_scatter", "Reduce_scatter"),
    calls!("reduce", "Reduce"),
    calls!("gather", "Gather"),
    calls!("gatherv", "Gatherv"),
    calls!("scan", "Scan"),
    calls!("scatter", "Scatter"),
    calls!("scatterv", "Scatterv"),
    calls!("alltoallw", "Alltoallw"),
    calls!("exscan", "Exscan"),
    calls!("reduce_scatter_block", "Reduce_scatter_block"),
    calls!("neighbor_allgather", "Neighbor_allgather"),
    calls!("neighbor_allgatherv", "Neighbor_allgatherv"),
    calls!("neighbor_alltoall", "Neighbor_alltoall"),
    calls!("neighbor_alltoallv", "Neighbor_alltoallv"),
    calls!("neighbor_alltoallw", "Neighbor_alltoallw"),
    active!("barrier", "Barrier"),
    active!("bcast", "Bcast"),
    active!("allgather", "Allgather"),
    active!("allgatherv", "Allgatherv"),
    active!("allreduce", "Allreduce"),
    active!("alltoall", "Alltoall"),
    active!("alltoallv", "Alltoallv"),
    active!("reduce_scatter", "Reduce_scatter"),
    active!("reduce", "Reduce"),
    active!("gather", "Gather"),
    active!("gatherv", "Gatherv"),
    active!("scan", "Scan"),
    active!("scatter", "Scatter"),
    active!("scatterv", "Scatterv"),
    active!("alltoallw", "Alltoallw"),
    active!("exscan", "Exscan"),
    active!("reduce_scatter_block", "Reduce_scatter_block"),
    active!("neighbor_allgather", "Neighbor_allgather"),
    active!("neighbor_allgatherv", "Neighbor_allgatherv"),
    active!("neighbor_alltoall", "Neighbor_alltoall"),
    active!("neighbor_alltoallv", "Neighbor_alltoallv"),
    active!("neighbor_alltoallw", "Neighbor_alltoallw"),
    pvar(
        "sent_messages_to",
        MESSAGES,
        PvarClass::Counter,
        PvarSource::Ranks(PeerTraffic::messages),
        "Messages sent to each rank of MPI_COMM_WORLD, in all communicators, including those of collectives and \
         internal ones. Collectives over a board and the channels of QMP send no messages.",
    ),
    pvar(
        "sent_bytes_to",
        MESSAGES,
        PvarClass::Aggregate,
        PvarSource::Ranks(PeerTraffic::bytes),
        "Bytes of the messages sent to each rank of MPI_COMM_WORLD, in all communicators (sent_messages_to).",
    ),
    pvar(
        "time_waiting",
        WAITING,
        PvarClass::Timer,
        PvarSource::Process(|counters| counters.waited_ns.get()),
        "Seconds spent waiting in calls that have ended, summed over all threads. The time counts after about 100 \
         microseconds of polling; if ranks share cores, from the beginning of the wait.",
    ).of(PvarNumber::Double),
    pvar(
        "waits_long",
        WAITING,
        PvarClass::Counter,
        PvarSource::Process(|counters| counters.waits.get()),
        "Calls that have ended and that waited for longer than about 100 microseconds; if ranks share cores, all \
         that waited (time_waiting).",
    ),
    pvar(
        "yields",
        WAITING,
        PvarClass::Counter,
        PvarSource::Process(|counters| counters.yields.get()),
        "Number of times that the process yielded its core to other processes while it waited.",
    ),
    pvar(
        "sleeps",
        WAITING,
        PvarClass::Counter,
        PvarSource::Process(|_| shm(|it| it.sleeps)),
        "Number of times that the process slept until another rank of its node woke it.",
    ),
    pvar(
        "bells_rung",
        WAITING,
        PvarClass::Counter,
        PvarSource::Process(|_| shm(|it| it.bells)),
        "Number of times that the process notified a rank of its node that was not polling of a message.",
    ),
    pvar(
        "wakeups",
        WAITING,
        PvarClass::Counter,
        PvarSource::Process(|_| shm(|it| it.wakes)),
        "Number of times that the process woke a sleeping rank of its node.",
    ),
    pvar(
        "shm_frames_sent",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| shm(|it| it.sends)),
        "Frames sent through shared memory: messages, parts of messages, and control frames.",
    ),
    pvar(
        "shm_read_bytes",
        NETWORK,
        PvarClass::Aggregate,
        PvarSource::Process(|_| shm(|it| it.read_bytes)),
        "Bytes of large messages that the process, as the receiver, copied from the memory of other ranks of its \
         node.",
    ),
    pvar(
        "shm_helped_bytes",
        NETWORK,
        PvarClass::Aggregate,
        PvarSource::Process(|_| shm(|it| it.helped_bytes)),
        "Bytes of large messages to the process that the sender, a rank of its node, copied while the process copied \
         the rest.",
    ),
    pvar(
        "shm_refused",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| shm(|it| it.refused)),
        "Malformed frames and offers in shared memory, which were ignored.",
    ),
    pvar(
        "rendezvous_receives_read",
        PROTOCOL,
        PvarClass::Counter,
        PvarSource::Process(|counters| counters.pulled.get()),
        "Announced messages whose data the process, or the network on its behalf, read from the sender's memory.",
    ),
    pvar(
        "rendezvous_read_bytes",
        PROTOCOL,
        PvarClass::Aggregate,
        PvarSource::Process(|counters| counters.pulled_bytes.get()),
        "Bytes of announced messages that the process, or the network on its behalf, read from the sender's memory.",
    ),
    pvar(
        "rendezvous_receives_streamed",
        PROTOCOL,
        PvarClass::Counter,
        PvarSource::Process(|counters| counters.streamed.get()),
        "Announced messages whose data the sender sent in frames, because the process could not read them from the \
         sender's memory.",
    ),
    pvar(
        "rendezvous_streamed_bytes",
        PROTOCOL,
        PvarClass::Aggregate,
        PvarSource::Process(|counters| counters.streamed_bytes.get()),
        "Bytes of announced messages that were sent in frames.",
    ),
    pvar(
        "cancels",
        PROTOCOL,
        PvarClass::Counter,
        PvarSource::Process(|counters| counters.cancels.get()),
        "Sends and receives for which the program called MPI_Cancel.",
    ),
    pvar(
        "net_frames_sent",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| net(|it| it.0.sends)),
        "Frames sent over the network.",
    ),
    pvar(
        "net_refused",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| net(|it| it.0.refused)),
        "Malformed frames and control messages from the network, which were ignored.",
    ),
    pvar(
        "net_packets",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| net(|it| it.1.packets)),
        "Packets sent over reliable queue pairs.",
    ),
    pvar(
        "net_datagrams",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| net(|it| it.1.datagrams)),
        "Packets sent as datagrams.",
    ),
    pvar(
        "net_datagrams_overdue",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| net(|it| it.1.overdue)),
        "Datagrams that were sent again, because they were not acknowledged in time.",
    ),
    pvar(
        "net_packets_twice",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| net(|it| it.1.twice)),
        "Packets that arrived twice; the second copy was dropped.",
    ),
    pvar(
        "net_pairs_joined",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| net(|it| it.1.joined)),
        "Reliable queue pairs that were connected.",
    ),
    pvar(
        "net_pairs_narrow",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| net(|it| it.1.narrow)),
        "Reliable queue pairs of this process whose packets are smaller than both ports support, because larger \
         packets do not arrive.",
    ),
    pvar(
        "net_pairs_broken",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| net(|it| it.1.broken)),
        "Reliable queue pairs that broke.",
    ),
    pvar(
        "net_pairs_not_ready",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| net(|it| it.1.not_ready)),
        "Reliable queue pairs that broke because the peer had no receive buffers for too long.",
    ),
    pvar(
        "net_pairs_given_up",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| net(|it| it.1.given_up)),
        "Reliable queue pairs that were closed to make room for others.",
    ),
    pvar(
        "net_rails",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| net(|it| it.1.rails)),
        "TCP connections that were opened over a further interface, for large messages.",
    ),
    pvar(
        "net_moved_bytes",
        NETWORK,
        PvarClass::Aggregate,
        PvarSource::Process(|_| net(|it| it.1.moved_bytes)),
        "Bytes that were read from or written to remote memory by the device, for this process.",
    ),
    pvar(
        "net_striped_works",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| net(|it| it.1.striped)),
        "Reads and writes that used several ports or interfaces at the same time.",
    ),
    pvar(
        "net_fetched_reads",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| net(|it| it.1.fetched)),
        "Reads that the owners of the data executed as writes.",
    ),
    pvar(
        "net_detours",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| net(|it| it.1.detours)),
        "Number of times that packets to a rank were moved to another port.",
    ),
    pvar(
        "net_packets_repeated",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| net(|it| it.1.repeated)),
        "RoCE packets that this process sent again, because they or their acknowledgements were lost or late. \
         Adapters do not report theirs.",
    ),
    pvar(
        "net_timeouts",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| net(|it| it.1.timeouts)),
        "Number of times that a RoCE acknowledgement did not arrive in time.",
    ),
    pvar(
        "net_window_cuts",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| net(|it| it.1.window_cuts)),
        "Number of times that the window of a RoCE connection was reduced, because of congestion or losses.",
    ),
    pvar(
        "net_packets_in_place",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| net(|it| it.1.in_place)),
        "RoCE packets over DPDK whose payload was not copied into a frame: the device read it from its place. RDMA \
         adapters do so with all packets, which are not counted.",
    ),
    pvar(
        "net_bytes_in_place",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| net(|it| it.1.in_place_bytes)),
        "Payload bytes of the packets in net_packets_in_place.",
    ),
    pvar(
        "receives_truncated",
        PROTOCOL,
        PvarClass::Counter,
        PvarSource::Process(|counters| counters.truncated.get()),
        "Messages that were longer than their receive buffer.",
    ),
    pvar(
        "operations_lost",
        PROTOCOL,
        PvarClass::Counter,
        PvarSource::Process(|counters| counters.lost.get()),
        "Sends and receives that failed because the other process was lost.",
    ),
    pvar(
        "throttled_by_receivers",
        MEMORY,
        PvarClass::Counter,
        PvarSource::Process(|counters| counters.throttled.get()),
        "Number of times that a receiver asked the process to announce its messages, because too many were \
         unexpected there.",
    ),
    pvar(
        "released_by_receivers",
        MEMORY,
        PvarClass::Counter,
        PvarSource::Process(|counters| counters.released.get()),
        "Number of times that a receiver ended its request to announce messages.",
    ),
    timed!("barrier", "Barrier"),
    timed!("bcast", "Bcast"),
    timed!("allgather", "Allgather"),
    timed!("allgatherv", "Allgatherv"),
    timed!("allreduce", "Allreduce"),
    timed!("alltoall", "Alltoall"),
    timed!("alltoallv", "Alltoallv"),
    timed!("reduce_scatter", "Reduce_scatter"),
    timed!("reduce", "Reduce"),
    timed!("gather", "Gather"),
    timed!("gatherv", "Gatherv"),
    timed!("scan", "Scan"),
    timed!("scatter", "Scatter"),
    timed!("scatterv", "Scatterv"),
    timed!("alltoallw", "Alltoallw"),
    timed!("exscan", "Exscan"),
    timed!("reduce_scatter_block", "Reduce_scatter_block"),
    timed!("neighbor_allgather", "Neighbor_allgather"),
    timed!("neighbor_allgatherv", "Neighbor_allgatherv"),
    timed!("neighbor_alltoall", "Neighbor_alltoall"),
    timed!("neighbor_alltoallv", "Neighbor_alltoallv"),
    timed!("neighbor_alltoallw", "Neighbor_alltoallw"),
    pvar(
        "net_registrations",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| net(|it| it.1.registered)),
        "Memory regions that were registered with network ports.",
    ),
    pvar(
        "net_registered_bytes",
        NETWORK,
        PvarClass::Level,
        PvarSource::Process(|_| net(|it| it.1.registered_bytes)),
        "Bytes that are registered now; memory that is registered with several ports counts once for each.",
    ),
    pvar(
        "net_registered_bytes_most",
        NETWORK,
        PvarClass::Generic,
        PvarSource::Process(|_| net(|it| it.1.registered_most_bytes)),
        "Maximum number of bytes that were registered at one time, since MPI was initialized.",
    ),
    pvar(
        "communicator_posted_recvq_length",
        MESSAGES,
        PvarClass::Level,
        PvarSource::Queue(Queued::Posted),
        "Length of the communicator's queue of posted receives: receives that have begun and that no message has \
         matched, without those of collectives. While a handle of this variable exists, receives of the process take \
         slightly longer.",
    )
    .of(PvarNumber::Unsigned),
    pvar(
        "qmp_sends",
        QMP,
        PvarClass::Counter,
        PvarSource::Process(|_| channels(|it| it.sends)),
        "Sends over QMP channels that were started and completed by a wait.",
    ),
    pvar(
        "qmp_receives",
        QMP,
        PvarClass::Counter,
        PvarSource::Process(|_| channels(|it| it.receives)),
        "Receives over QMP channels that were started and completed by a wait.",
    ),
    pvar(
        "qmp_late_gates",
        QMP,
        PvarClass::Counter,
        PvarSource::Process(|_| channels(|it| it.late_gates)),
        "Sends over QMP channels that were started before their receiver had opened its gate, that is, sent the \
         address for the data. Large messages wait for it.",
    ),
    pvar(
        "qmp_direct_bytes",
        QMP,
        PvarClass::Aggregate,
        PvarSource::Process(|_| channels(|it| it.direct_bytes)),
        "Bytes that QMP channels moved from the send buffer to the receive buffer in one step; counted by the \
         sender.",
    ),
    pvar(
        "qmp_copied_bytes",
        QMP,
        PvarClass::Aggregate,
        PvarSource::Process(|_| channels(|it| it.packed_bytes)),
        "Bytes that QMP channels copied once more, at either end: small blocks with gaps, and memory that the other \
         end cannot access.",
    ),
    pvar(
        "qmp_early_bytes",
        QMP,
        PvarClass::Aggregate,
        PvarSource::Process(|_| channels(|it| it.eager_bytes)),
        "Bytes of small messages that QMP channels sent before their gate was open.",
    ),
    pvar(
        "qmp_frame_bytes",
        QMP,
        PvarClass::Aggregate,
        PvarSource::Process(|_| channels(|it| it.streamed_bytes)),
        "Bytes that QMP channels sent in frames, because the sender cannot write to the receiver's memory.",
    ),
    pvar(
        "qmp_writes",
        QMP,
        PvarClass::Counter,
        PvarSource::Process(|_| channels(|it| it.writes)),
        "Writes of QMP channels to receive buffers.",
    ),
    pvar(
        "qmp_gates_told",
        QMP,
        PvarClass::Counter,
        PvarSource::Process(|_| channels(|it| it.gates)),
        "Gates of QMP channels that were opened by frames. Within a node most are opened by a store, which is not \
         counted.",
    ),
    pvar(
        "qmp_allocations",
        QMP,
        PvarClass::Counter,
        PvarSource::Process(|_| channels(|it| it.allocations)),
        "Number of memory allocations of QMP channels, which usually happen only when channels are declared.",
    ),
    pvar(
        "qmp_refused",
        QMP,
        PvarClass::Counter,
        PvarSource::Process(|_| channels(|it| it.refused)),
        "Malformed frames and control messages for QMP channels, which were ignored.",
    ),
    pvar(
        "launch_command_ns",
        LAUNCH,
        PvarClass::Generic,
        PvarSource::Process(|_| phase_ns(LaunchPhase::Command)),
        "Nanoseconds from the start of rmpiexec until it had parsed its command line and inspected the programs. 0 \
         unless rmpiexec started the process.",
    ),
    pvar(
        "launch_hosts_ns",
        LAUNCH,
        PvarClass::Generic,
        PvarSource::Process(|_| phase_ns(LaunchPhase::Hosts)),
        "Nanoseconds that rmpiexec took after that to reach all hosts. 0 in a job of one host, and unless rmpiexec \
         started the process.",
    ),
    pvar(
        "launch_daemons_ns",
        LAUNCH,
        PvarClass::Generic,
        PvarSource::Process(|_| phase_ns(LaunchPhase::Daemons)),
        "Nanoseconds that rmpiexec took after that until its daemons had prepared everything that ranks need. 0 \
         unless rmpiexec started the process.",
    ),
    pvar(
        "launch_start_ns",
        LAUNCH,
        PvarClass::Generic,
        PvarSource::Process(|_| phase_ns(LaunchPhase::Start)),
        "Nanoseconds from the request to the host's daemon to start ranks until the process executed its program. 0 \
         unless rmpiexec started the process.",
    ),
    pvar(
        "launch_program_ns",
        LAUNCH,
        PvarClass::Generic,
        PvarSource::Process(|_| phase_ns(LaunchPhase::Program)),
        "Nanoseconds from the execution of the program until it called MPI_Init or a similar function: dynamic \
         linking, and the program's own start. 0 unless rmpiexec started the process.",
    ),
    pvar(
        "init_job_ns",
        LAUNCH,
        PvarClass::Generic,
        PvarSource::Process(|_| phase_ns(LaunchPhase::Job)),
        "Nanoseconds of MPI_Init in which the process read its settings and the description of its job. Under \
         another launcher, this includes waiting for the other ranks.",
    ),
    pvar(
        "init_network_ns",
        LAUNCH,
        PvarClass::Generic,
        PvarSource::Process(|_| phase_ns(LaunchPhase::Network)),
        "Nanoseconds of MPI_Init in which the process opened shared memory and the network. Under another launcher \
         and on several hosts, this includes waiting for the ranks of other hosts.",
    ),
    pvar(
        "init_rest_ns",
        LAUNCH,
        PvarClass::Generic,
        PvarSource::Process(|_| phase_ns(LaunchPhase::Rest)),
        "Nanoseconds of MPI_Init after the network was open: communicators and the state of the library. Under \
         rmpiexec, ranks of other hosts are connected only when the process first sends them something.",
    ),
];

const _: () = assert!(PVARS.len() == 90 + 3 * COLLECTIVES.len());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s15_3_7_types_fit_their_classes_and_names_are_unique() {
        for (at, pvar) in PVARS.iter().enumerate() {
            let name = pvar.name;
            let same = |other: &PerformanceVariable| other.name == name;
            assert!(!PVARS[..at].iter().any(same), "{name}");
            assert!(pvar.text.ends_with('.') && pvar.category.place().is_some());
            // A description may be displayed alone, so it must not refer to those of other rows.
            for word in [
                " those.",
                "that queue",
                "that memory",
                "those messages",
                " such ",
                "so long",
            ] {
                assert!(!pvar.text.contains(word), "{name}: {word}");
            }
            let fits = match pvar.class {
                PvarClass::State => matches!(pvar.kind, PvarNumber::Int(_)),
                PvarClass::Percentage | PvarClass::Timer => pvar.kind == PvarNumber::Double,
                PvarClass::Counter | PvarClass::Level | PvarClass::Size | PvarClass::Aggregate => {
                    matches!(pvar.kind, PvarNumber::Unsigned | PvarNumber::Long)
                }
                PvarClass::HighWatermark | PvarClass::LowWatermark => pvar.kind == PvarNumber::Long,
                PvarClass::Generic => true,
            };
            assert!(fits, "{name}");
            let watches = matches!(
                pvar.class,
                PvarClass::HighWatermark | PvarClass::LowWatermark
            );
            let is_extreme = matches!(pvar.source, PvarSource::Extreme(_));
            assert_eq!(watches, is_extreme, "{name}");
        }
    }

    #[test]
    fn startup_phases_are_documented_in_order() {
        let page = include_str!("../../../../../docs/variables.md");
        let phases = PVARS.iter().filter(|pvar| pvar.name.ends_with("_ns"));
        let rows = phases.map(|pvar| page.find(&format!("\n| `{}` |", pvar.name)));
        let rows: Vec<usize> = rows.map(|row| row.unwrap()).collect();
        assert!(rows.len() == 8 && rows.is_sorted(), "{rows:?}");
    }

    #[test]
    fn used_budget_fraction_is_between_0_and_1() {
        let counters = EngineCounters::default();
        assert_eq!(budget_used(&counters), 0.0_f64.to_bits());
        counters.kept_bytes.add(1);
        assert_eq!(budget_used(&counters), 1.0_f64.to_bits());
    }
}
