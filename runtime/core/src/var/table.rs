// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows.

use super::{Category, Item, Range, Row, Scope, Verbosity};

/// Names of the rows in the program, in the order of [`ROWS`].
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
    NetPairs,
    NetDatagramsFirst,
    NetSilence,
    Tools,
    Boot,
    Rank,
    Size,
    LocalRank,
    LocalSize,
    Stats,
    Cc,
    Cxx,
}

/// The table.
pub const ROWS: [Row; 38] = [
    Row {
        variable: Variable::EagerLimit,
        name: "RMPI_EAGER_LIMIT",
        category: Category::PointToPoint,
        verbosity: Verbosity::UserBasic,
        scope: Scope::Local,
        range: Range::Number {
            least: 0,
            most: 8 << 10,
            default: 8 << 10,
            unit: "bytes",
        },
        text: "Messages up to this size travel at once and are kept by the receiver if it does not wait for \
               them; larger ones are announced, and their data move when the receive is there.",
    },
    Row {
        variable: Variable::EarlyLimit,
        name: "RMPI_EARLY_LIMIT",
        category: Category::PointToPoint,
        verbosity: Verbosity::TunerBasic,
        scope: Scope::Local,
        range: Range::Number {
            least: 0,
            most: engine::wire::MOST_EARLY_BYTES,
            default: 64 << 10,
            unit: "bytes",
        },
        text: "Larger messages up to this size travel at once too, in several parts, to ranks for which that is \
               found to be faster: those whose core shares no cache with the sender's.",
    },
    Row {
        variable: Variable::UnexpectedBudget,
        name: "RMPI_UNEXPECTED_BUDGET",
        category: Category::Memory,
        verbosity: Verbosity::UserDetail,
        scope: Scope::Local,
        range: Range::Number {
            least: 0,
            most: 1 << 40,
            default: 64 << 20,
            unit: "bytes",
        },
        text: "Memory for data of messages that arrived before their receive. Past it, senders are asked to \
               announce every message and keep the data themselves.",
    },
    Row {
        variable: Variable::Wait,
        name: "RMPI_WAIT",
        category: Category::Waiting,
        verbosity: Verbosity::UserBasic,
        scope: Scope::Local,
        range: Range::Words(&["auto", "spin", "yield"]),
        text: "How a rank waits: by what it finds about free cores (auto); always as if it had a core of its own, \
               and never asleep (spin); or always as if it had to share one (yield).",
    },
    Row {
        variable: Variable::SingleCopy,
        name: "RMPI_SINGLE_COPY",
        category: Category::PointToPoint,
        verbosity: Verbosity::TunerBasic,
        scope: Scope::Local,
        range: Range::Words(&["auto", "off", "on"]),
        text: "How large messages move inside a node: streamed through shared buffers (off), by one copy between \
               the two processes where the system allows it (on), or whichever is found to be faster (auto).",
    },
    Row {
        variable: Variable::Persistent,
        name: "RMPI_PERSISTENT",
        category: Category::PointToPoint,
        verbosity: Verbosity::TunerBasic,
        scope: Scope::Local,
        range: Range::Words(&["gates", "messages"]),
        text: "How data of persistent requests go between ranks of a node where the receive is in memory of MPI_Alloc_mem: \
               straight there, once both ranks have started the same exchange some times (gates); or always as those of \
               other requests (messages). Through gates a large message moves while its sender is in a call of MPI.",
    },
    Row {
        variable: Variable::Collectives,
        name: "RMPI_COLLECTIVES",
        category: Category::Collectives,
        verbosity: Verbosity::TunerBasic,
        scope: Scope::AllEqual,
        range: Range::Words(&["auto", "flat", "rounds"]),
        text: "How small collectives go: through one rank, so that each of the others waits once (flat); in a \
               logarithmic number of rounds between all (rounds); or (auto) without messages, over a board, where \
               there is one, else flat where the ranks of a node outnumber its CPUs, else in rounds. The same on \
               all ranks, as the limits below.",
    },
    Row {
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
        text: "Blocking collectives of at most this much data of each rank go over a board, if all ranks of the \
               communicator are on one node: memory where each puts its data and reads those of the others. A node \
               has 16 boards: one for MPI_COMM_WORLD, the others for the communicators that are made first.",
    },
    Row {
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
        text: "Collectives of more data are not flat.",
    },
    Row {
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
        text: "In reductions of so much data that each rank's part of them is at least this large, every rank combines \
               a part of all ranks' data.",
    },
    Row {
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
        text: "Blocks up to this size are carried along by ranks between in MPI_Allgather and MPI_Alltoall; larger \
               ones go straight to their rank.",
    },
    Row {
        variable: Variable::Providers,
        name: "RMPI_PROVIDERS",
        category: Category::Network,
        verbosity: Verbosity::UserDetail,
        scope: Scope::AllEqual,
        range: Range::Names {
            all: &["self", "shm", "verbs"],
            default: "self,shm,verbs",
        },
        text: "What may carry messages: shm, shared memory, between ranks of one node; verbs, InfiniBand and RoCE, between \
               all others, or all where shm may not; and self, from a rank to itself, which is always there. The same on \
               all ranks.",
    },
    Row {
        variable: Variable::NetDevices,
        name: "RMPI_NET_DEVICES",
        category: Category::Network,
        verbosity: Verbosity::UserDetail,
        scope: Scope::Local,
        range: Range::List(Item::Device),
        text: "Which devices of the network may be used. Several ranks of a node begin with different ones in turn.",
    },
    Row {
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
        text: "How many ports of the network a rank uses, if there are so many: large messages go over all of them at once, \
               and all go over the next when one fails.",
    },
    Row {
        variable: Variable::NetRendezvous,
        name: "RMPI_NET_RENDEZVOUS",
        category: Category::Network,
        verbosity: Verbosity::TunerDetail,
        scope: Scope::Local,
        range: Range::Words(&["auto", "read", "write"]),
        text: "Who moves large messages over the network: the receiver reads them (read), or the sender writes them when the                receiver asks for it (write), or (auto) the receiver reads, but if its device has no more than one read                under way at a time.",
    },
    Row {
        variable: Variable::QmpReproducible,
        name: "RMPI_QMP_REPRODUCIBLE",
        category: Category::Qmp,
        verbosity: Verbosity::UserDetail,
        scope: Scope::ReadOnly,
        range: Range::Words(&["off", "on"]),
        text: "Whether the sums and binary reductions of QMP are made in the order of the nodes, so that every run has the \
               same bits on any machine. The same on all ranks.",
    },
    Row {
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
        text: "How long QMP_wait waits for a message before it returns QMP_TIMEOUT. With 0 it waits for ever.",
    },
    Row {
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
        text: "When all ranks have waited so long without any progress, rmpiexec says so, and names the command that shows \
               who waits for what. With 0 it never does.",
    },
    Row {
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
        text: "A rank that has a core of its own polls so often before it looks at the clock and, between two polls, offers its core to others.",
    },
    Row {
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
        text: "From then on, and for so long, such a rank goes on polling; then it sleeps.",
    },
    Row {
        variable: Variable::Yields,
        name: "RMPI_YIELDS",
        category: Category::Waiting,
        verbosity: Verbosity::TunerDetail,
        scope: Scope::Any,
        range: Range::Number {
            least: 0,
            most: 1 << 20,
            default: 2,
            unit: "times",
        },
        text: "A rank that shares its core offers it to others so often before it sleeps.",
    },
    Row {
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
        text: "The same in collectives, whose ranks all wait for each other.",
    },
    Row {
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
        text: "A rank that sleeps looks around at least this often, though nobody wakes it.",
    },
    Row {
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
        text: "A rank that only sends, and never waits, looks at what has arrived once in so many sends.",
    },
    Row {
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
        text: "Large messages that go through shared buffers go in frames of this size.",
    },
    Row {
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
        text: "With fewer ranks no block is carried along by ranks between.",
    },
    Row {
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
        text: "So many reliable queue pairs a rank has at most; the least used ones are given up for others.",
    },
    Row {
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
        text: "So many packets to a rank go as datagrams before a reliable queue pair is made for it.",
    },
    Row {
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
        text: "A rank whose queue pair broke, and that has not answered for so long, is given up as lost.",
    },
    foreign(
        Variable::Tools,
        "RMPI_TOOLS",
        "The tools of QMPI that stand between the program and MPI, the outermost first, with colons between: names of tools \
         that are in the process, or paths (/path/libtool.so, name=/path/libtool.so).",
    ),
    foreign(
        Variable::Boot,
        "RMPI_BOOT",
        "What rmpiexec tells a rank about the job.",
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
        Variable::Stats,
        "RMPI_STATS",
        "Where a rank leaves what rmpiexec --stats tells of it.",
    ),
    foreign(Variable::Cc, "RMPI_CC", "The C compiler behind rmpicc."),
    foreign(
        Variable::Cxx,
        "RMPI_CXX",
        "The C++ compiler behind rmpicxx.",
    ),
];

const fn foreign(variable: Variable, name: &'static str, text: &'static str) -> Row {
    Row {
        variable,
        name,
        category: Category::Launch,
        verbosity: Verbosity::UserAll,
        scope: Scope::ReadOnly,
        range: Range::Foreign,
        text,
    }
}
