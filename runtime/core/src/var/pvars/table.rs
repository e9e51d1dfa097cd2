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
                "Time that calls of MPI_",
                $collective,
                " in the communicator have taken that have ended, in seconds. Calls are timed once somebody has a handle of one of \
                 these variables; one that goes on in the background takes as long as that goes on."
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
        "Where the process is: before MPI is initialized, running, or finalized.",
    )
    .of(PvarNumber::Int(PHASES)),
    pvar(
        "communicators",
        PROCESS,
        PvarClass::Level,
        PvarSource::Process(|counters| counters.communicators.get()),
        "Communicators that the process has, MPI_COMM_WORLD and MPI_COMM_SELF among them.",
    ),
    pvar(
        "communicators_high",
        PROCESS,
        PvarClass::HighWatermark,
        PvarSource::Extreme(|counters| &counters.communicators),
        "The most communicators that the process had at one time.",
    ),
    pvar(
        "communicators_made",
        PROCESS,
        PvarClass::Counter,
        PvarSource::Process(|counters| counters.communicators_made.get()),
        "Communicators that the process was given, MPI_COMM_WORLD and MPI_COMM_SELF among them.",
    ),
    pvar(
        "communicator_size",
        PROCESS,
        PvarClass::Size,
        PvarSource::Comm(|row, _| row.size_and_rank().0 as u64, 0),
        "Ranks of the communicator; of an intercommunicator those of the local group.",
    )
    .of(PvarNumber::Unsigned),
    pvar(
        "communicator_rank",
        PROCESS,
        PvarClass::Generic,
        PvarSource::Comm(|row, _| row.size_and_rank().1 as u64, 0),
        "The rank of the process in the communicator, from the beginning; it never changes.",
    )
    .of(PvarNumber::Int(&[])),
    pvar(
        "unexpected_recvq_length",
        MESSAGES,
        PvarClass::Level,
        PvarSource::Process(|counters| counters.unexpected_length.get()),
        "Length of the queue of unexpected messages: what has arrived and no receive has matched, of all communicators, with the \
         library's own.",
    ),
    pvar(
        "unexpected_recvq_length_high",
        MESSAGES,
        PvarClass::HighWatermark,
        PvarSource::Extreme(|counters| &counters.unexpected_length),
        "The most messages at one time in the queue of unexpected messages, since the handle was made or reset.",
    ),
    pvar(
        "unexpected_recvq_length_low",
        MESSAGES,
        PvarClass::LowWatermark,
        PvarSource::Extreme(|counters| &counters.unexpected_length),
        "The fewest messages at one time in the queue of unexpected messages, since the handle was made or reset.",
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
        "Length of the communicator's queue of unexpected messages: what has arrived and no receive has matched, but for collectives.",
    )
    .of(PvarNumber::Unsigned),
    pvar(
        "match_attempts",
        PROTOCOL,
        PvarClass::Aggregate,
        PvarSource::Process(|counters| counters.match_attempts.get()),
        "Receives and messages that were looked at to find out what matches. A receive that the process waits for when its \
         message comes is not looked for, and not counted.",
    ),
    pvar(
        "rendezvous_sends",
        PROTOCOL,
        PvarClass::Counter,
        PvarSource::Process(|counters| counters.announced.get()),
        "Messages that were announced to their receivers before their data moved, since they are large or synchronous, or their \
         receiver has asked for it.",
    ),
    pvar(
        "rendezvous_send_bytes",
        PROTOCOL,
        PvarClass::Aggregate,
        PvarSource::Process(|counters| counters.announced_bytes.get()),
        "Bytes of messages that were announced to their receivers before their data moved.",
    ),
    pvar(
        "early_sends",
        PROTOCOL,
        PvarClass::Counter,
        PvarSource::Process(|counters| counters.early.get()),
        "Messages above the eager limit that went at once, in several parts (RMPI_EARLY_LIMIT).",
    ),
    pvar(
        "early_send_bytes",
        PROTOCOL,
        PvarClass::Aggregate,
        PvarSource::Process(|counters| counters.early_bytes.get()),
        "Bytes of messages above the eager limit that went at once, in several parts (RMPI_EARLY_LIMIT).",
    ),
    pvar(
        "gate_sends",
        PROTOCOL,
        PvarClass::Counter,
        PvarSource::Process(|counters| counters.gated.get()),
        "Messages of persistent sends that went through a gate, straight to where they belong (RMPI_PERSISTENT).",
    ),
    pvar(
        "gate_send_bytes",
        PROTOCOL,
        PvarClass::Aggregate,
        PvarSource::Process(|counters| counters.gated_bytes.get()),
        "Bytes of messages of persistent sends that went through a gate, straight to where they belong (RMPI_PERSISTENT).",
    ),
    pvar(
        "frames_refused",
        (Category::Network, Verbosity::DeveloperBasic),
        PvarClass::Counter,
        PvarSource::Process(|counters| counters.refused.get()),
        "Pieces of messages (frames) that made no sense and changed nothing: more than 0 is a defect somewhere.",
    ),
    pvar(
        "senders_throttled",
        MEMORY,
        PvarClass::Counter,
        PvarSource::Process(|counters| counters.throttles.get()),
        "Times that a sender was asked to announce its messages, because too many were unexpected.",
    ),
    pvar(
        "unexpected_recvq_buffer_size",
        MEMORY,
        PvarClass::Level,
        PvarSource::Process(|counters| counters.kept_bytes.get()),
        "Bytes of memory for the data of unexpected messages, with what each message costs beside its data.",
    ),
    pvar(
        "unexpected_recvq_buffer_size_high",
        MEMORY,
        PvarClass::HighWatermark,
        PvarSource::Extreme(|counters| &counters.kept_bytes),
        "The most bytes of memory at one time for messages that no receive had matched, since the handle was made or reset.",
    ),
    pvar(
        "unexpected_recvq_buffer_size_low",
        MEMORY,
        PvarClass::LowWatermark,
        PvarSource::Extreme(|counters| &counters.kept_bytes),
        "The fewest bytes of memory at one time for messages that no receive had matched, since the handle was made or reset.",
    ),
    pvar(
        "unexpected_budget",
        MEMORY,
        PvarClass::Size,
        PvarSource::Process(|_| BUDGET.load(Relaxed)),
        "Bytes of memory for unexpected messages past which senders are asked to announce (RMPI_UNEXPECTED_BUDGET); 0 \
         before MPI is initialized.",
    ),
    pvar(
        "unexpected_budget_used",
        MEMORY,
        PvarClass::Percentage,
        PvarSource::Process(budget_used),
        "The share of unexpected_budget that is in use, from 0 to 1; 1 also where it is more.",
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
        "Messages that the process has sent to each rank of MPI_COMM_WORLD, in all communicators, with those of collectives and \
         the library's own. Collectives over a board and the channels of QMP send none.",
    ),
    pvar(
        "sent_bytes_to",
        MESSAGES,
        PvarClass::Aggregate,
        PvarSource::Ranks(PeerTraffic::bytes),
        "Bytes of the messages that the process has sent to each rank of MPI_COMM_WORLD, in all communicators (sent_messages_to).",
    ),
    pvar(
        "time_waiting",
        WAITING,
        PvarClass::Timer,
        PvarSource::Process(|counters| counters.waited_ns.get()),
        "Seconds in calls that waited for long, from when they had polled for some 100 microseconds, or where ranks share cores at once; of calls that have ended, and the sum of all threads.",
    ).of(PvarNumber::Double),
    pvar(
        "waits_long",
        WAITING,
        PvarClass::Counter,
        PvarSource::Process(|counters| counters.waits.get()),
        "Calls that have waited for longer than some 100 microseconds, or where ranks share cores at all, and have ended \
         (time_waiting).",
    ),
    pvar(
        "yields",
        WAITING,
        PvarClass::Counter,
        PvarSource::Process(|counters| counters.yields.get()),
        "Times that the process offered its core to others while it waited.",
    ),
    pvar(
        "sleeps",
        WAITING,
        PvarClass::Counter,
        PvarSource::Process(|_| shm(|it| it.sleeps)),
        "Times that the process went to sleep, to be woken by another rank of its node.",
    ),
    pvar(
        "bells_rung",
        WAITING,
        PvarClass::Counter,
        PvarSource::Process(|_| shm(|it| it.bells)),
        "Times that the process told a rank of its node, which did not look, that a message is there.",
    ),
    pvar(
        "wakeups",
        WAITING,
        PvarClass::Counter,
        PvarSource::Process(|_| shm(|it| it.wakes)),
        "Times that the process woke a rank of its node that slept.",
    ),
    pvar(
        "shm_frames_sent",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| shm(|it| it.sends)),
        "Frames sent through shared memory: messages, parts of them, and the library's own words.",
    ),
    pvar(
        "shm_read_bytes",
        NETWORK,
        PvarClass::Aggregate,
        PvarSource::Process(|_| shm(|it| it.read_bytes)),
        "Bytes of large messages that the process has copied itself out of the memory of other ranks of its node.",
    ),
    pvar(
        "shm_helped_bytes",
        NETWORK,
        PvarClass::Aggregate,
        PvarSource::Process(|_| shm(|it| it.helped_bytes)),
        "Bytes of large messages from ranks of its node that the sender has copied to the process, while that copied the rest.",
    ),
    pvar(
        "shm_refused",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| shm(|it| it.refused)),
        "Frames and offers through shared memory that made no sense and changed nothing.",
    ),
    pvar(
        "rendezvous_receives_read",
        PROTOCOL,
        PvarClass::Counter,
        PvarSource::Process(|counters| counters.pulled.get()),
        "Announced messages whose data the process has read out of the sender's memory, or the network for it.",
    ),
    pvar(
        "rendezvous_read_bytes",
        PROTOCOL,
        PvarClass::Aggregate,
        PvarSource::Process(|counters| counters.pulled_bytes.get()),
        "Bytes of announced messages that the process has read out of the sender's memory, or the network for it.",
    ),
    pvar(
        "rendezvous_receives_streamed",
        PROTOCOL,
        PvarClass::Counter,
        PvarSource::Process(|counters| counters.streamed.get()),
        "Announced messages whose data the process has asked for in pieces (frames), where it could not read them itself.",
    ),
    pvar(
        "rendezvous_streamed_bytes",
        PROTOCOL,
        PvarClass::Aggregate,
        PvarSource::Process(|counters| counters.streamed_bytes.get()),
        "Bytes of announced messages whose data came in frames.",
    ),
    pvar(
        "cancels",
        PROTOCOL,
        PvarClass::Counter,
        PvarSource::Process(|counters| counters.cancels.get()),
        "Sends and receives that the program has cancelled, or tried to.",
    ),
    pvar(
        "net_frames_sent",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| net(|it| it.0.sends)),
        "Frames given to the network.",
    ),
    pvar(
        "net_refused",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| net(|it| it.0.refused)),
        "Frames and words from the network that made no sense and changed nothing.",
    ),
    pvar(
        "net_packets",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| net(|it| it.1.packets)),
        "Packets that went over reliable queue pairs.",
    ),
    pvar(
        "net_datagrams",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| net(|it| it.1.datagrams)),
        "Packets that went as datagrams.",
    ),
    pvar(
        "net_datagrams_overdue",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| net(|it| it.1.overdue)),
        "Datagrams that were not acknowledged in time, and went again.",
    ),
    pvar(
        "net_packets_twice",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| net(|it| it.1.twice)),
        "Packets that came twice, and were dropped.",
    ),
    pvar(
        "net_pairs_joined",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| net(|it| it.1.joined)),
        "Reliable queue pairs that were joined.",
    ),
    pvar(
        "net_pairs_narrow",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| net(|it| it.1.narrow)),
        "Reliable queue pairs that the process has asked for and whose packets are shorter than both ports carry, since longer ones do not arrive.",
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
        "Reliable queue pairs that broke because the peer had no buffers for too long.",
    ),
    pvar(
        "net_pairs_given_up",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| net(|it| it.1.given_up)),
        "Reliable queue pairs that were given up for others.",
    ),
    pvar(
        "net_rails",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| net(|it| it.1.rails)),
        "Connections of tcp that were made over a further interface, for large messages.",
    ),
    pvar(
        "net_moved_bytes",
        NETWORK,
        PvarClass::Aggregate,
        PvarSource::Process(|_| net(|it| it.1.moved_bytes)),
        "Bytes that the device has read or written elsewhere on order of the process.",
    ),
    pvar(
        "net_striped_works",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| net(|it| it.1.striped)),
        "Reads and writes that went over several ports or interfaces at once.",
    ),
    pvar(
        "net_fetched_reads",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| net(|it| it.1.fetched)),
        "Reads that the owners of the data carried out as writes.",
    ),
    pvar(
        "net_detours",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| net(|it| it.1.detours)),
        "Times that packets to a rank took another port than before.",
    ),
    pvar(
        "net_packets_repeated",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| net(|it| it.1.repeated)),
        "Packets of RoCE that this process has sent again, since they or their acknowledgements were lost or late; adapters do not tell.",
    ),
    pvar(
        "net_timeouts",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| net(|it| it.1.timeouts)),
        "Times that this process has waited too long for an answer of RoCE.",
    ),
    pvar(
        "net_window_cuts",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| net(|it| it.1.window_cuts)),
        "Times that this process has sent less of RoCE at once, because of congestion or losses.",
    ),
    pvar(
        "net_packets_in_place",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| net(|it| it.1.in_place)),
        "Packets of RoCE over DPDK whose payload was not copied into a frame: the device has read it where it is. Adapters do so with all, and are not counted.",
    ),
    pvar(
        "net_bytes_in_place",
        NETWORK,
        PvarClass::Counter,
        PvarSource::Process(|_| net(|it| it.1.in_place_bytes)),
        "Bytes of these payloads.",
    ),
    pvar(
        "receives_truncated",
        PROTOCOL,
        PvarClass::Counter,
        PvarSource::Process(|counters| counters.truncated.get()),
        "Messages that were longer than the buffer of their receive.",
    ),
    pvar(
        "operations_lost",
        PROTOCOL,
        PvarClass::Counter,
        PvarSource::Process(|counters| counters.lost.get()),
        "Sends and receives that failed since the other process does not answer any more.",
    ),
    pvar(
        "throttled_by_receivers",
        MEMORY,
        PvarClass::Counter,
        PvarSource::Process(|counters| counters.throttled.get()),
        "Times that a receiver has asked the process to announce its messages, because too many were unexpected there.",
    ),
    pvar(
        "released_by_receivers",
        MEMORY,
        PvarClass::Counter,
        PvarSource::Process(|counters| counters.released.get()),
        "Times that a receiver which had asked the process to announce its messages has taken that back.",
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
        "Regions of memory that were registered with ports of the network.",
    ),
    pvar(
        "net_registered_bytes",
        NETWORK,
        PvarClass::Level,
        PvarSource::Process(|_| net(|it| it.1.registered_bytes)),
        "Bytes that are registered now; of memory that several ports know, as often.",
    ),
    pvar(
        "net_registered_bytes_most",
        NETWORK,
        PvarClass::Generic,
        PvarSource::Process(|_| net(|it| it.1.registered_most_bytes)),
        "The most bytes that were registered at any time, since MPI is initialized.",
    ),
    pvar(
        "communicator_posted_recvq_length",
        MESSAGES,
        PvarClass::Level,
        PvarSource::Queue(Queued::Posted),
        "Length of the communicator's queue of posted receives: what has begun and no message has matched, but for collectives. As long \
         as somebody has a handle of this variable, receives of the process cost some more time.",
    )
    .of(PvarNumber::Unsigned),
    pvar(
        "qmp_sends",
        QMP,
        PvarClass::Counter,
        PvarSource::Process(|_| channels(|it| it.sends)),
        "Sends over channels of QMP that were started and waited for.",
    ),
    pvar(
        "qmp_receives",
        QMP,
        PvarClass::Counter,
        PvarSource::Process(|_| channels(|it| it.receives)),
        "Receives over channels of QMP that were started and waited for.",
    ),
    pvar(
        "qmp_late_gates",
        QMP,
        PvarClass::Counter,
        PvarSource::Process(|_| channels(|it| it.late_gates)),
        "Sends over channels of QMP that were started before their receiver had opened its gate, which is to say where the bytes \
         belong; what is large waits for it.",
    ),
    pvar(
        "qmp_direct_bytes",
        QMP,
        PvarClass::Aggregate,
        PvarSource::Process(|_| channels(|it| it.direct_bytes)),
        "Bytes that channels of QMP have moved from where they were to where they belong, in one go; counted by the sender.",
    ),
    pvar(
        "qmp_copied_bytes",
        QMP,
        PvarClass::Aggregate,
        PvarSource::Process(|_| channels(|it| it.packed_bytes)),
        "Bytes that channels of QMP have copied once more, at either end: small blocks with gaps, and memory that the other end \
         cannot reach.",
    ),
    pvar(
        "qmp_early_bytes",
        QMP,
        PvarClass::Aggregate,
        PvarSource::Process(|_| channels(|it| it.eager_bytes)),
        "Bytes of small messages that channels of QMP have sent before their gate was open.",
    ),
    pvar(
        "qmp_frame_bytes",
        QMP,
        PvarClass::Aggregate,
        PvarSource::Process(|_| channels(|it| it.streamed_bytes)),
        "Bytes that channels of QMP have sent in frames, since nobody can write to the memory of the receiver.",
    ),
    pvar(
        "qmp_writes",
        QMP,
        PvarClass::Counter,
        PvarSource::Process(|_| channels(|it| it.writes)),
        "Writes to where messages belong, by channels of QMP.",
    ),
    pvar(
        "qmp_gates_told",
        QMP,
        PvarClass::Counter,
        PvarSource::Process(|_| channels(|it| it.gates)),
        "Gates that channels of QMP have told of in frames; within a node most are opened by a store, and not counted.",
    ),
    pvar(
        "qmp_allocations",
        QMP,
        PvarClass::Counter,
        PvarSource::Process(|_| channels(|it| it.allocations)),
        "Times that channels of QMP have asked for memory: as a rule, when they are declared and never later.",
    ),
    pvar(
        "qmp_refused",
        QMP,
        PvarClass::Counter,
        PvarSource::Process(|_| channels(|it| it.refused)),
        "Frames and words for channels of QMP that made no sense and changed nothing.",
    ),
    pvar(
        "launch_command_ns",
        LAUNCH,
        PvarClass::Generic,
        PvarSource::Process(|_| phase_ns(LaunchPhase::Command)),
        "Nanoseconds from the beginning of rmpiexec until it had understood its command line and looked at the programs. 0 where another \
         launcher has started the process, or none.",
    ),
    pvar(
        "launch_hosts_ns",
        LAUNCH,
        PvarClass::Generic,
        PvarSource::Process(|_| phase_ns(LaunchPhase::Hosts)),
        "Nanoseconds that rmpiexec then took to reach all hosts. 0 in a job of one host, where another launcher has started the process, or \
         none.",
    ),
    pvar(
        "launch_daemons_ns",
        LAUNCH,
        PvarClass::Generic,
        PvarSource::Process(|_| phase_ns(LaunchPhase::Daemons)),
        "Nanoseconds that rmpiexec then took until its daemons had found and made all that ranks need. 0 where another launcher has started \
         the process, or none.",
    ),
    pvar(
        "launch_start_ns",
        LAUNCH,
        PvarClass::Generic,
        PvarSource::Process(|_| phase_ns(LaunchPhase::Start)),
        "Nanoseconds from when the daemon of the host was told to start ranks until the process became its program. 0 where another launcher \
         has started the process, or none.",
    ),
    pvar(
        "launch_program_ns",
        LAUNCH,
        PvarClass::Generic,
        PvarSource::Process(|_| phase_ns(LaunchPhase::Program)),
        "Nanoseconds from when the process became its program until it called MPI_Init or the like: the dynamic linker, and what the program \
         did before. 0 where another launcher has started the process, or none.",
    ),
    pvar(
        "init_job_ns",
        LAUNCH,
        PvarClass::Generic,
        PvarSource::Process(|_| phase_ns(LaunchPhase::Job)),
        "Nanoseconds of MPI_Init in which the process read its settings and learnt of its job: from what rmpiexec has left it, or, where \
         another launcher has started it, from that and the other ranks, for which it waits.",
    ),
    pvar(
        "init_network_ns",
        LAUNCH,
        PvarClass::Generic,
        PvarSource::Process(|_| phase_ns(LaunchPhase::Network)),
        "Nanoseconds of MPI_Init in which the process opened shared memory and the network, and, where another launcher has started it on one of \
         several hosts, waited for the ranks of the others to have done so.",
    ),
    pvar(
        "init_rest_ns",
        LAUNCH,
        PvarClass::Generic,
        PvarSource::Process(|_| phase_ns(LaunchPhase::Rest)),
        "Nanoseconds of MPI_Init after the network was open: communicators and the state of the library. Under rmpiexec ranks of other hosts \
         are looked for when the process first sends them something.",
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
