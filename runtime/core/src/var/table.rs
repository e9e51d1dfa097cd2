// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows of the table of control variables.

use super::{Category, ControlVariable, ListItem, Range, Scope, Verbosity};
use super::{collectives, tuning};

/// Identifiers of the rows, in the order of [`ROWS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is explained by its row")]
pub enum Variable {
    EagerLimit,
    EarlyLimit,
    UnexpectedBudget,
    Wait,
    SingleCopy,
    Persistent,
    Collectives,
    BoardLimit,
    FlatLimit,
    SliceLimit,
    CarryLimit,
    Providers,
    Dpdk,
    NetDevices,
    NetRails,
    NetRendezvous,
    QmpReproducible,
    QmpTimeout,
    Standstill,
    Spins,
    SpinTime,
    Yields,
    PatientYields,
    LongSleep,
    SendsPerLook,
    StreamChunk,
    CarryRanks,
    ThreadSpins,
    ShortSleep,
    PollSleep,
    CrowdDelay,
    CrowdHold,
    TasksPerCall,
    LeaderContexts,
    GateStarts,
    CopyTrials,
    UnexpectedMessages,
    UnexpectedRelease,
    EventRecords,
    Barrier,
    Bcast,
    Reduce,
    Allreduce,
    ReduceScatter,
    Scan,
    Gather,
    Scatter,
    Allgather,
    Allgatherv,
    Alltoall,
    AlltoallWindow,
    NodeLimit,
    NodeGatherLimit,
    NodeSliceLimit,
    RingLimit,
    BcastSliceLimit,
    BcastSegment,
    BoardBcastLimit,
    BoardWholeLimit,
    NetPairs,
    NetDatagramsFirst,
    NetSilence,
    NetSendDepth,
    NetReceiveDepth,
    NetDatagramDepth,
    NetDatagramReceives,
    NetInline,
    NetSignalEvery,
    NetStripeLimit,
    NetCopyLimit,
    NetPart,
    NetMtu,
    NetReads,
    NetTimeout,
    NetRetries,
    NetNotReadyRetries,
    NetNotReadyTime,
    NetServiceLevel,
    NetTrafficClass,
    NetHops,
    NetPartition,
    NetGidIndex,
    NetInterfaces,
    NetCongestion,
    PortRange,
    Pmi,
    PmixLibrary,
    PmiUsed,
    Tools,
    Boot,
    Rank,
    Size,
    LocalRank,
    LocalSize,
    LocalNodes,
    Stats,
    Cc,
    Cxx,
    Fc,
}

/// The table.
pub const ROWS: [ControlVariable; 99] = [
    ControlVariable {
        variable: Variable::EagerLimit,
        name: "RMPI_EAGER_LIMIT",
        category: Category::PointToPoint,
        verbosity: Verbosity::UserBasic,
        scope: Scope::Any,
        range: Range::Number {
            least: 0,
            most: 8 << 10,
            default: 8 << 10,
            unit: "bytes",
        },
        text: "Messages up to this size are sent at once, and kept by the receiver if no receive is posted; \
               larger ones are announced, and their data are sent when the receive is posted, or, over TCP and up to \
               256 KiB, before.",
    },
    ControlVariable {
        variable: Variable::EarlyLimit,
        name: "RMPI_EARLY_LIMIT",
        category: Category::PointToPoint,
        verbosity: Verbosity::TunerBasic,
        scope: Scope::Any,
        range: Range::Number {
            least: 0,
            most: engine::wire::MAX_EARLY_BYTES,
            default: 64 << 10,
            unit: "bytes",
        },
        text: "Larger messages up to this size are sent at once too, in several parts, to ranks for which that \
               is found to be faster: those whose core shares no cache with the sender's.",
    },
    ControlVariable {
        variable: Variable::UnexpectedBudget,
        name: "RMPI_UNEXPECTED_BUDGET",
        category: Category::Memory,
        verbosity: Verbosity::UserDetail,
        scope: Scope::Any,
        range: Range::Number {
            least: 0,
            most: 1 << 40,
            default: 64 << 20,
            unit: "bytes",
        },
        text: "Memory for data of messages that arrived before their receive was posted. Above it, senders \
               announce every message and keep the data.",
    },
    ControlVariable {
        variable: Variable::Wait,
        name: "RMPI_WAIT",
        category: Category::Waiting,
        verbosity: Verbosity::UserBasic,
        scope: Scope::Any,
        range: Range::Words(&["auto", "spin", "yield"]),
        text: "How a rank waits: depending on whether it finds free cores (auto); always as if it had a core of \
               its own, without sleeping (spin); or always as if it shared one (yield).",
    },
    ControlVariable {
        variable: Variable::SingleCopy,
        name: "RMPI_SINGLE_COPY",
        category: Category::PointToPoint,
        verbosity: Verbosity::TunerBasic,
        scope: Scope::Any,
        range: Range::Words(&["auto", "off", "on"]),
        text: "How large messages are transferred inside a node: streamed through shared buffers (off), by one \
               copy between the two processes where the system allows it (on), or whichever is found to be faster \
               (auto).",
    },
    ControlVariable {
        variable: Variable::Persistent,
        name: "RMPI_PERSISTENT",
        category: Category::PointToPoint,
        verbosity: Verbosity::TunerBasic,
        scope: Scope::Local,
        range: Range::Words(&["gates", "messages"]),
        text: "How data of persistent requests are transferred between ranks of a node if the receive buffer is \
               memory of MPI_Alloc_mem: directly, once both ranks have started the same exchange some times (gates); \
               or always as those of other requests (messages). Through gates a large message is transferred while \
               its sender is in a call of MPI.",
    },
    ControlVariable {
        variable: Variable::Collectives,
        name: "RMPI_COLLECTIVES",
        category: Category::Collectives,
        verbosity: Verbosity::TunerBasic,
        scope: Scope::AllEqual,
        range: Range::Words(&["auto", "flat", "rounds"]),
        text: "Algorithm of small collectives: through one rank, so that each of the others waits once (flat); \
               in a logarithmic number of rounds between all (rounds); or (auto) without messages, over a board, \
               where there is one, else flat where the ranks of a node outnumber its CPUs, else in rounds. It must be \
               the same on all ranks, as the limits below.",
    },
    ControlVariable {
        variable: Variable::BoardLimit,
        name: "RMPI_BOARD_LIMIT",
        category: Category::Collectives,
        verbosity: Verbosity::TunerDetail,
        scope: Scope::AllEqual,
        range: Range::Number {
            least: 0,
            most: 1 << 20,
            default: 64 << 10,
            unit: "bytes",
        },
        text: "Blocking collectives of at most this much data of each rank use a board, if all ranks of the \
               communicator are on one node: shared memory where each rank puts its data and reads those of the \
               others. Larger reductions use it piece by piece. A node has 16 boards: one for MPI_COMM_WORLD, the \
               others for the communicators that are created first. 0: no board is used.",
    },
    ControlVariable {
        variable: Variable::FlatLimit,
        name: "RMPI_FLAT_LIMIT",
        category: Category::Collectives,
        verbosity: Verbosity::TunerDetail,
        scope: Scope::AllEqual,
        range: Range::Number {
            least: 0,
            most: 1 << 20,
            default: 4 << 10,
            unit: "bytes",
        },
        text: "Largest size of data for which collectives are flat.",
    },
    ControlVariable {
        variable: Variable::SliceLimit,
        name: "RMPI_SLICE_LIMIT",
        category: Category::Collectives,
        verbosity: Verbosity::TunerDetail,
        scope: Scope::AllEqual,
        range: Range::Number {
            least: 0,
            most: 1 << 40,
            default: 4 << 10,
            unit: "bytes",
        },
        text: "Reductions in which each rank's share of the data is at least this large are split: every rank \
               combines its share of all ranks' data.",
    },
    ControlVariable {
        variable: Variable::CarryLimit,
        name: "RMPI_CARRY_LIMIT",
        category: Category::Collectives,
        verbosity: Verbosity::TunerDetail,
        scope: Scope::AllEqual,
        range: Range::Number {
            least: 0,
            most: 1 << 20,
            default: 256,
            unit: "bytes",
        },
        text: "In MPI_Allgather and MPI_Alltoall by messages, other ranks forward blocks up to this size, so \
               that there are fewer messages; larger blocks are sent directly.",
    },
    ControlVariable {
        variable: Variable::Providers,
        name: "RMPI_PROVIDERS",
        category: Category::Network,
        verbosity: Verbosity::UserDetail,
        scope: Scope::Local,
        range: Range::Names {
            all: &["self", "shm", "verbs", "tcp", "roce", "dpdk"],
            default: "self,shm,verbs,tcp",
        },
        text: "What may carry messages: shm, shared memory, between ranks of one node; verbs, InfiniBand and \
               RoCE adapters, between all others, or all if shm is not listed; dpdk, RoCE without the kernel over the \
               ports of RMPI_DPDK, where a rank has no such adapter; roce, RoCE in datagrams of UDP, where it has \
               neither; tcp, between ranks that no other provider connects; and self, from a rank to itself, which is \
               always there. shm must be listed on all ranks or on none. Adapters of other hosts reach a rank by roce \
               if verbs is listed here too.",
    },
    ControlVariable {
        variable: Variable::Dpdk,
        name: "RMPI_DPDK",
        category: Category::Network,
        verbosity: Verbosity::UserDetail,
        scope: Scope::Local,
        range: Range::Text(
            "ports with semicolons between, each ADDRESS DEVICE, or a file of them (default none)",
        ),
        text: "The ports of this host for dpdk in RMPI_PROVIDERS: one for each rank here, in their order. Each \
               is an IPv4 address that no other port has, with the length of its network's prefix behind a slash, and \
               DPDK's name of a device with its arguments. mtu=BYTES, gateway=ADDRESS and huge may follow.",
    },
    ControlVariable {
        variable: Variable::NetDevices,
        name: "RMPI_NET_DEVICES",
        category: Category::Network,
        verbosity: Verbosity::UserDetail,
        scope: Scope::Local,
        range: Range::List(ListItem::Device),
        text: "The network devices that may be used. Ranks of a node begin with different ones in turn.",
    },
    ControlVariable {
        variable: Variable::NetRails,
        name: "RMPI_NET_RAILS",
        category: Category::Network,
        verbosity: Verbosity::TunerBasic,
        scope: Scope::Local,
        range: Range::Number {
            least: 1,
            most: 4,
            default: 2,
            unit: "ports",
        },
        text: "How many ports of the network a rank uses, if there are as many: large messages are divided over \
               all of them, and all traffic moves to the next one when one fails. Over tcp, how many interfaces it \
               uses with each other rank, if both hosts have as many: large messages are divided over all of them.",
    },
    ControlVariable {
        variable: Variable::NetRendezvous,
        name: "RMPI_NET_RENDEZVOUS",
        category: Category::Network,
        verbosity: Verbosity::TunerDetail,
        scope: Scope::Local,
        range: Range::Words(&["auto", "read", "write"]),
        text: "Who transfers large messages over the network: the receiver reads them (read); the sender writes \
               them on request of the receiver (write); or (auto) the receiver reads, unless its device can have only \
               one read in flight.",
    },
    ControlVariable {
        variable: Variable::QmpReproducible,
        name: "RMPI_QMP_REPRODUCIBLE",
        category: Category::Qmp,
        verbosity: Verbosity::UserDetail,
        scope: Scope::ReadOnly,
        range: Range::Words(&["off", "on"]),
        text: "Whether the sums and binary reductions of QMP are computed in the order of the nodes, so that \
               every run gives the same bits on any machine. It must be the same on all ranks.",
    },
    ControlVariable {
        variable: Variable::QmpTimeout,
        name: "RMPI_QMP_TIMEOUT",
        category: Category::Qmp,
        verbosity: Verbosity::UserDetail,
        scope: Scope::ReadOnly,
        range: Range::Number {
            least: 0,
            most: 1 << 30,
            default: 0,
            unit: "seconds",
        },
        text: "How long QMP_wait waits for a message before it returns QMP_TIMEOUT. 0: without limit.",
    },
    ControlVariable {
        variable: Variable::Standstill,
        name: "RMPI_STANDSTILL",
        category: Category::Waiting,
        verbosity: Verbosity::UserDetail,
        scope: Scope::Local,
        range: Range::Number {
            least: 0,
            most: 1 << 30,
            default: 60,
            unit: "seconds",
        },
        text: "After this time in which all ranks waited without any progress, rmpiexec reports it, and names \
               the command that shows which ranks wait for which. 0: never.",
    },
    ControlVariable {
        variable: Variable::Spins,
        name: "RMPI_SPINS",
        category: Category::Waiting,
        verbosity: Verbosity::TunerDetail,
        scope: Scope::Any,
        range: Range::Number {
            least: 0,
            most: 1 << 30,
            default: 2000,
            unit: "polls",
        },
        text: "Number of polls of a waiting rank that has a core of its own, before it looks at the clock and \
               yields between two polls.",
    },
    ControlVariable {
        variable: Variable::SpinTime,
        name: "RMPI_SPIN_TIME",
        category: Category::Waiting,
        verbosity: Verbosity::TunerDetail,
        scope: Scope::Any,
        range: Range::Number {
            least: 0,
            most: 60_000_000,
            default: 1000,
            unit: "microseconds",
        },
        text: "How long such a rank then continues to poll before it sleeps. A rank that shares its core does \
               so too, as long as no other process wants the core; in collectives of a whole job over hosts for a \
               twentieth of the time. If a process on another host reports that it has to wait for its core, it is a \
               tenth of the time: the hosts may be virtual machines of one.",
    },
    ControlVariable {
        variable: Variable::Yields,
        name: "RMPI_YIELDS",
        category: Category::Waiting,
        verbosity: Verbosity::TunerDetail,
        scope: Scope::Any,
        range: Range::Number {
            least: 0,
            most: 1 << 20,
            default: 3,
            unit: "times",
        },
        text: "How often a waiting rank that shares its core yields before it sleeps.",
    },
    ControlVariable {
        variable: Variable::PatientYields,
        name: "RMPI_PATIENT_YIELDS",
        category: Category::Waiting,
        verbosity: Verbosity::TunerDetail,
        scope: Scope::Any,
        range: Range::Number {
            least: 0,
            most: 1 << 20,
            default: 20,
            unit: "times",
        },
        text: "The same in a collective that all ranks of the node enter: there the others need the core to get \
               to it.",
    },
    ControlVariable {
        variable: Variable::LongSleep,
        name: "RMPI_LONG_SLEEP",
        category: Category::Waiting,
        verbosity: Verbosity::TunerAll,
        scope: Scope::Any,
        range: Range::Number {
            least: 1,
            most: 1000,
            default: 100,
            unit: "milliseconds",
        },
        text: "Longest time that a sleeping rank sleeps before it polls again, if nothing wakes it.",
    },
    ControlVariable {
        variable: Variable::SendsPerLook,
        name: "RMPI_SENDS_PER_LOOK",
        category: Category::PointToPoint,
        verbosity: Verbosity::TunerAll,
        scope: Scope::Any,
        range: Range::Number {
            least: 1,
            most: 1 << 20,
            default: 16,
            unit: "sends",
        },
        text: "A rank that only sends, and never waits, polls for arrivals once in this many sends. Messages of \
               up to 48 bytes to ranks of its node do not count.",
    },
    ControlVariable {
        variable: Variable::StreamChunk,
        name: "RMPI_STREAM_CHUNK",
        category: Category::PointToPoint,
        verbosity: Verbosity::TunerDetail,
        scope: Scope::Local,
        range: Range::Number {
            least: 256,
            most: 8 << 10,
            default: 8 << 10,
            unit: "bytes",
        },
        text: "Frame size of large messages that are streamed through shared buffers.",
    },
    ControlVariable {
        variable: Variable::CarryRanks,
        name: "RMPI_CARRY_RANKS",
        category: Category::Collectives,
        verbosity: Verbosity::TunerDetail,
        scope: Scope::AllEqual,
        range: Range::Number {
            least: 2,
            most: 1 << 20,
            default: 5,
            unit: "ranks",
        },
        text: "Smallest number of ranks for which blocks are forwarded (RMPI_CARRY_LIMIT).",
    },
    tuning::THREAD_SPINS,
    tuning::SHORT_SLEEP,
    tuning::POLL_SLEEP,
    tuning::CROWD_DELAY,
    tuning::CROWD_HOLD,
    tuning::TASKS_PER_CALL,
    tuning::LEADER_CONTEXTS,
    tuning::GATE_STARTS,
    tuning::COPY_TRIALS,
    tuning::UNEXPECTED_MESSAGES,
    tuning::UNEXPECTED_RELEASE,
    tuning::EVENT_RECORDS,
    collectives::BARRIER,
    collectives::BCAST,
    collectives::REDUCE,
    collectives::ALLREDUCE,
    collectives::REDUCE_SCATTER,
    collectives::SCAN,
    collectives::GATHER,
    collectives::SCATTER,
    collectives::ALLGATHER,
    collectives::ALLGATHERV,
    collectives::ALLTOALL,
    collectives::ALLTOALL_WINDOW,
    collectives::NODE_LIMIT,
    collectives::NODE_GATHER_LIMIT,
    collectives::NODE_SLICE_LIMIT,
    collectives::RING_LIMIT,
    collectives::BCAST_SLICE_LIMIT,
    collectives::BCAST_SEGMENT,
    collectives::BOARD_BCAST_LIMIT,
    collectives::BOARD_WHOLE_LIMIT,
    ControlVariable {
        variable: Variable::NetPairs,
        name: "RMPI_NET_PAIRS",
        category: Category::Network,
        verbosity: Verbosity::TunerDetail,
        scope: Scope::Local,
        range: Range::Number {
            least: 1,
            most: 128,
            default: 128,
            unit: "queue pairs",
        },
        text: "Most reliable queue pairs, or tcp connections, of a rank; the least used ones are closed to make \
               others.",
    },
    ControlVariable {
        variable: Variable::NetDatagramsFirst,
        name: "RMPI_NET_DATAGRAMS_FIRST",
        category: Category::Network,
        verbosity: Verbosity::TunerDetail,
        scope: Scope::Local,
        range: Range::Number {
            least: 0,
            most: 1 << 20,
            default: 16,
            unit: "packets",
        },
        text: "Packets to a rank that are sent as datagrams before a reliable queue pair is made for it.",
    },
    ControlVariable {
        variable: Variable::NetSilence,
        name: "RMPI_NET_SILENCE",
        category: Category::Network,
        verbosity: Verbosity::TunerDetail,
        scope: Scope::Local,
        range: Range::Number {
            least: 1,
            most: 86400,
            default: 120,
            unit: "seconds",
        },
        text: "After this time without an answer, a rank whose queue pair broke is given up as lost.",
    },
    net(
        Variable::NetSendDepth,
        "RMPI_NET_SEND_DEPTH",
        Verbosity::TunerDetail,
        [2, 512, 64],
        "work requests",
        "Most work requests in flight on one reliable queue pair.",
    ),
    net(
        Variable::NetReceiveDepth,
        "RMPI_NET_RECEIVE_DEPTH",
        Verbosity::TunerDetail,
        [4, 2048, 192],
        "buffers",
        "Most receive buffers, of 8 KiB each, of a port for reliable queue pairs. A port begins with 32, and \
         gets more when they run short.",
    ),
    net(
        Variable::NetDatagramDepth,
        "RMPI_NET_DATAGRAM_DEPTH",
        Verbosity::TunerAll,
        [4, 1024, 256],
        "datagrams",
        "Most datagrams in flight from a port.",
    ),
    net(
        Variable::NetDatagramReceives,
        "RMPI_NET_DATAGRAM_RECEIVES",
        Verbosity::TunerAll,
        [4, 2048, 192],
        "buffers",
        "Most receive buffers of a port for datagrams.",
    ),
    net(
        Variable::NetInline,
        "RMPI_NET_INLINE",
        Verbosity::TunerDetail,
        [0, 1024, 220],
        "bytes",
        "Packets up to this size, with 40 bytes of headers, are sent inline, inside the work request, if the \
         device allows that size.",
    ),
    net(
        Variable::NetSignalEvery,
        "RMPI_NET_SIGNAL_EVERY",
        Verbosity::TunerAll,
        [1, 64, 16],
        "packets",
        "One packet in this many requests a completion.",
    ),
    net(
        Variable::NetStripeLimit,
        "RMPI_NET_STRIPE_LIMIT",
        Verbosity::TunerDetail,
        [8 << 10, 1 << 40, 512 << 10],
        "bytes",
        "Data of messages of at least this size are divided over several ports or interfaces.",
    ),
    net(
        Variable::NetCopyLimit,
        "RMPI_NET_COPY_LIMIT",
        Verbosity::TunerDetail,
        [0, 64 << 10, 64 << 10],
        "bytes",
        "Data of messages up to this size are copied through registered memory, if the program's memory is not \
         registered; 0: never.",
    ),
    net(
        Variable::NetPart,
        "RMPI_NET_PART",
        Verbosity::TunerAll,
        [4 << 10, 1 << 30, 1 << 30],
        "bytes",
        "Large data are read or written in parts of at most this size.",
    ),
    net(
        Variable::NetMtu,
        "RMPI_NET_MTU",
        Verbosity::UserDetail,
        [256, 4 << 10, 4 << 10],
        "bytes",
        "Largest payload of a packet, rounded down to a power of two for a device and to a multiple of 64 without one; \
         smaller if a port of either side supports less, or if longer packets do not arrive.",
    ),
    net(
        Variable::NetReads,
        "RMPI_NET_READS",
        Verbosity::TunerDetail,
        [1, 16, 16],
        "reads",
        "Most reads and atomics in flight on one queue pair.",
    ),
    net(
        Variable::NetTimeout,
        "RMPI_NET_TIMEOUT",
        Verbosity::UserDetail,
        [1, 4000, 67],
        "milliseconds",
        "How long the device waits for an answer before it sends a packet again, rounded up to 4.096 \
         microseconds times a power of two. It doubles with each queue pair to a rank that broke without an \
         answer, up to four times this value.",
    ),
    net(
        Variable::NetRetries,
        "RMPI_NET_RETRIES",
        Verbosity::UserDetail,
        [0, 6, 6],
        "times",
        "How often the device sends a packet again before its queue pair breaks. Nothing is lost then: another \
         one is made.",
    ),
    net(
        Variable::NetNotReadyRetries,
        "RMPI_NET_NOT_READY_RETRIES",
        Verbosity::TunerDetail,
        [0, 6, 6],
        "times",
        "The same for packets for which the receiver had no buffer.",
    ),
    net(
        Variable::NetNotReadyTime,
        "RMPI_NET_NOT_READY_TIME",
        Verbosity::TunerDetail,
        [10, 655360, 640],
        "microseconds",
        "How long a receiver without a buffer lets the sender's device wait, rounded up to a value that the \
         protocol has.",
    ),
    net(
        Variable::NetServiceLevel,
        "RMPI_NET_SERVICE_LEVEL",
        Verbosity::UserDetail,
        [0, 15, 0],
        "",
        "Service level of all packets; on Ethernet its three low bits are their priority.",
    ),
    net(
        Variable::NetTrafficClass,
        "RMPI_NET_TRAFFIC_CLASS",
        Verbosity::UserDetail,
        [0, 255, 106],
        "",
        "Traffic class of all packets on Ethernet: four times the DSCP, plus 2 if routers may mark congestion \
         (ECN). The default is DSCP 26 with ECN.",
    ),
    net(
        Variable::NetHops,
        "RMPI_NET_HOPS",
        Verbosity::TunerDetail,
        [1, 255, 64],
        "routers",
        "Most routers on the path of a packet.",
    ),
    net(
        Variable::NetPartition,
        "RMPI_NET_PARTITION",
        Verbosity::UserDetail,
        [0, 65535, 0],
        "",
        "Key of the partition to use, 0x8001 for example; its highest bit is ignored. 0: the first key of each \
         port's table. It must be the same on all ranks.",
    ),
    ControlVariable {
        variable: Variable::NetGidIndex,
        name: "RMPI_NET_GID_INDEX",
        category: Category::Network,
        verbosity: Verbosity::UserDetail,
        scope: Scope::Local,
        range: Range::List(ListItem::GidPlace),
        text: "The indices of a port's GID table that may be used; the most suitable one is chosen. A port \
               where none is suitable is not used.",
    },
    ControlVariable {
        variable: Variable::NetInterfaces,
        name: "RMPI_NET_INTERFACES",
        category: Category::Network,
        verbosity: Verbosity::UserDetail,
        scope: Scope::Local,
        range: Range::List(ListItem::Interface),
        text: "The interfaces, or networks, that tcp may use. Unset: all that lead to other hosts, that is, no \
               bridges inside a host and no tunnels.",
    },
    ControlVariable {
        variable: Variable::NetCongestion,
        name: "RMPI_NET_CONGESTION",
        category: Category::Network,
        verbosity: Verbosity::UserDetail,
        scope: Scope::Local,
        range: Range::Words(&["auto", "system", "cubic", "reno", "dctcp", "bbr"]),
        text: "Congestion control of tcp connections: an algorithm of this system; the system's default \
               (system); or the default, but cubic or reno in place of bbr, which is slow between near hosts (auto).",
    },
    ControlVariable {
        variable: Variable::PortRange,
        name: "RMPI_PORT_RANGE",
        category: Category::Network,
        verbosity: Verbosity::UserDetail,
        scope: Scope::Local,
        range: Range::List(ListItem::PortRange),
        text: "Ports at which ranks accept tcp connections, for hosts with a firewall; each rank of a host \
               needs one. In jobs of Slurm, the daemon of rmpiexec on each host also listens at one of them while the \
               job starts. Unset: the system chooses.",
    },
    ControlVariable {
        variable: Variable::Pmi,
        name: "RMPI_PMI",
        category: Category::Launch,
        verbosity: Verbosity::UserDetail,
        scope: Scope::ReadOnly,
        range: Range::Words(&["auto", "pmi1", "pmi2", "pmix", "none"]),
        text: "How a process that rmpiexec has not started finds the others of its job: over the socket of the \
               launcher's server, by PMI-1 or PMI-2; through the PMIx library; or not at all, as a job of its own \
               (none). Unset: by PMI-1 if there is a socket, else by PMIx.",
    },
    foreign(
        Variable::PmixLibrary,
        "RMPI_PMIX_LIBRARY",
        "The PMIx library for processes that a launcher with PMIx has started. Unset: libpmix.so.2 of that \
         launcher's installation, or else of the system.",
    ),
    foreign(
        Variable::PmiUsed,
        "RMPI_PMI_USED",
        "Set by a rank of another launcher's job for its child processes, which are not part of the job.",
    ),
    foreign(
        Variable::Tools,
        "RMPI_TOOLS",
        "The QMPI tools between the program and MPI, the outermost first, separated by colons: names of tools \
         that are in the process, or paths (/path/libtool.so, name=/path/libtool.so).",
    ),
    foreign(
        Variable::Boot,
        "RMPI_BOOT",
        "The description of the job that rmpiexec gives to a rank.",
    ),
    foreign(
        Variable::Rank,
        "RMPI_RANK",
        "Rank in MPI_COMM_WORLD, for scripts.",
    ),
    foreign(
        Variable::Size,
        "RMPI_SIZE",
        "Size of MPI_COMM_WORLD, for scripts.",
    ),
    foreign(
        Variable::LocalRank,
        "RMPI_LOCAL_RANK",
        "Number of the rank on its node, for scripts.",
    ),
    foreign(
        Variable::LocalSize,
        "RMPI_LOCAL_SIZE",
        "Ranks on this node, for scripts.",
    ),
    foreign(
        Variable::LocalNodes,
        "RMPI_LOCAL_NODES",
        "Number of blocks into which rmpiexec divides the ranks, as if each were on a host of its own: ranks of \
         different blocks reach each other over a network only. With it one machine shows what a program does \
         on several.",
    ),
    foreign(
        Variable::Stats,
        "RMPI_STATS",
        "Where a rank writes its statistics for rmpiexec --stats.",
    ),
    foreign(Variable::Cc, "RMPI_CC", "The C compiler behind rmpicc."),
    foreign(
        Variable::Cxx,
        "RMPI_CXX",
        "The C++ compiler behind rmpicxx.",
    ),
    foreign(
        Variable::Fc,
        "RMPI_FC",
        "The Fortran compiler behind rmpifort.",
    ),
];

/// A row for the network with a number that may differ between ranks. The three numbers are the least, the largest and
/// the default value.
const fn net(
    variable: Variable,
    name: &'static str,
    verbosity: Verbosity,
    [least, most, default]: [u64; 3],
    unit: &'static str,
    text: &'static str,
) -> ControlVariable {
    ControlVariable {
        variable,
        name,
        category: Category::Network,
        verbosity,
        scope: Scope::Local,
        range: Range::Number {
            least,
            most,
            default,
            unit,
        },
        text,
    }
}

const fn foreign(variable: Variable, name: &'static str, text: &'static str) -> ControlVariable {
    ControlVariable {
        variable,
        name,
        category: Category::Launch,
        verbosity: Verbosity::UserAll,
        scope: Scope::ReadOnly,
        range: Range::Foreign,
        text,
    }
}
