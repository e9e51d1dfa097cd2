// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that collectives select the fastest algorithm if a message between nodes costs more than one inside a node.
//! There are four nodes of sixteen ranks, each node with one adapter. Time is simulated: apart from receiving messages,
//! the computation of ranks takes no time. So a measurement shows the structure of an algorithm: its sequential steps,
//! and how many packets queue at an adapter. No other algorithm may be faster than the selected one by more than the
//! factor `noise`. The table of results is printed by:
//!
//! ```text
//! cargo test -p runtime --test sim hops -- --nocapture
//! ```

use std::cell::RefCell;
use std::rc::Rc;

use corosensei::Coroutine;
use runtime::collective::choice::{Gather, Scatter};
use runtime::collective::{self, CollectiveRoot, Reducer};
use runtime::var::VariableValues;
use runtime::{CollectiveCall, Comm, ContextId, Group, Payload, Peer, Universe, UserMemory};
use transport::{Fabric, SimConfig, SimHop, SimNet};
use wireup::NodeMap;

use crate::rank::{Hand, Seat};

const NODES: u32 = 4;
const EACH: u32 = 16;
const RANKS: u32 = NODES * EACH;
/// Number of calls in a measurement with `bytes` bytes. Each call has a different root.
fn calls(bytes: usize) -> u32 {
    if bytes < 512 << 10 { 2 } else { 1 }
}

/// The network of the measurement. Inside a node a message takes some 300 ns. Between nodes it takes 2 us more, and a
/// packet occupies the adapter for 100 ns plus its bytes at 12.5 GB/s. A core takes 100 ns for each received message,
/// and copies 10 GB/s.
fn net() -> SimConfig {
    SimConfig {
        least_delay_ns: 300,
        most_delay_ns: 300,
        window_frames: 1024,
        lent_buffers: 1024,
        between: Some(SimHop {
            ranks_per_node: EACH,
            delay_ns: 2000,
            gap_ns: 100,
            byte_ps: 80,
            core_gap_ns: 100,
            core_byte_ps: 100,
        }),
        ..SimConfig::calm(1, RANKS)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Barrier,
    Bcast,
    Reduce,
    Allreduce,
    ReduceScatter,
    Allgather,
    Alltoall,
    Gather,
    Scatter,
}

impl Call {
    /// The environment variable that selects the algorithm of the call.
    fn variable(self) -> &'static str {
        match self {
            Self::Barrier => "RMPI_BARRIER",
            Self::Bcast => "RMPI_BCAST",
            Self::Reduce => "RMPI_REDUCE",
            Self::Allreduce => "RMPI_ALLREDUCE",
            Self::ReduceScatter => "RMPI_REDUCE_SCATTER",
            Self::Allgather => "RMPI_ALLGATHER",
            Self::Alltoall => "RMPI_ALLTOALL",
            Self::Gather => "RMPI_GATHER",
            Self::Scatter => "RMPI_SCATTER",
        }
    }
}

/// The sum of 64-bit words.
struct Sum;

impl Reducer for Sum {
    fn reduce(&self, earlier: &[u8], later: &mut [u8]) {
        let (later, _) = later.as_chunks_mut::<8>();
        let (earlier, _) = earlier.as_chunks::<8>();
        for (later, earlier) in later.iter_mut().zip(earlier) {
            let sum = u64::from_ne_bytes(*later).wrapping_add(u64::from_ne_bytes(*earlier));
            *later = sum.to_ne_bytes();
        }
    }

    fn item_bytes(&self) -> usize {
        8
    }

    fn commutes(&self) -> bool {
        true
    }
}

/// The average cost of a call.
#[derive(Clone, Copy, Debug)]
struct Cost {
    us: f64,
    /// Number of packets between nodes.
    between: f64,
}

impl std::fmt::Display for Cost {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:.1} ({:.0})", self.us, self.between)
    }
}

fn cost(call: Call, bytes: usize, algorithm: &str) -> Cost {
    let (algorithm, limits) = match algorithm {
        "one leader" => ("nodes", Some(("RMPI_NODE_SLICE_LIMIT", "1024G"))),
        "all lead" => ("nodes", Some(("RMPI_NODE_SLICE_LIMIT", "0"))),
        "nodes' ring" => ("auto", Some(("RMPI_RING_LIMIT", "0"))),
        algorithm => (algorithm, None),
    };
    let words = [(call.variable(), algorithm), ("RMPI_SINGLE_COPY", "on")];
    let words = words.into_iter().chain(limits);
    let words = words.map(|(name, word)| (name.to_owned(), word.to_owned()));
    let (values, warnings) = VariableValues::from_environment(words);
    assert_eq!(warnings, Vec::<String>::new());
    let net = SimNet::new(net());
    let map = NodeMap::new((0..RANKS).map(|rank| rank / EACH)).unwrap();
    let seat = |rank| {
        let fabric = Fabric::simulated(&net, transport::Peer(rank));
        let universe = Universe::new(fabric, Peer(rank), RANKS, &values);
        Rc::new(Seat::undisturbed(universe.over_nodes(map.clone())))
    };
    let seats: Vec<_> = (0..RANKS).map(seat).collect();
    let ends = Rc::new(RefCell::new(0_u64));
    let rank = |me: u32| {
        let (seat, ends) = (Rc::clone(&seats[me as usize]), Rc::clone(&ends));
        Coroutine::new(move |yielder, ()| {
            let hand = Hand::new(&seat, yielder);
            let mut comm = Comm::new(ContextId(0), Group::world(RANKS), me);
            seat.universe.borrow_mut().adopt(&mut comm);
            for number in 0..calls(bytes) {
                run(call, bytes, number * 17 % RANKS, hand, &comm);
                *ends.borrow_mut() += 1;
            }
        })
    };
    let mut ranks: Vec<Coroutine<(), (), ()>> = (0..RANKS).map(rank).collect();
    let position = || (net.stats().packets, *ends.borrow());
    while ranks.iter().any(|rank| !rank.done()) {
        // Before time advances, all ranks make all steps that they can make.
        let mut quiet = 0;
        while quiet < 2 {
            let before = position();
            let running = ranks.iter_mut().filter(|rank| !rank.done());
            running.for_each(|rank| _ = rank.resume(()));
            quiet = if position() == before { quiet + 1 } else { 0 };
        }
        net.advance();
    }
    let stats = net.stats();
    assert_eq!(stats.repeated, 0);
    Cost {
        us: net.now_ns() as f64 / 1e3 / f64::from(calls(bytes)),
        between: stats.between as f64 / f64::from(calls(bytes)),
    }
}

fn run(call: Call, bytes: usize, root: u32, hand: Hand<'_>, comm: &Comm) {
    let (ranks, me) = (RANKS as usize, comm.rank);
    let mine = vec![me as u8; bytes];
    let mut out = vec![0; bytes];
    let ended = match call {
        Call::Barrier => CollectiveCall::run(hand, comm, async |started| {
            collective::barrier(started).await
        }),
        Call::Bcast => {
            out.copy_from_slice(&vec![root as u8 + u8::from(me != root); bytes]);
            let ended = CollectiveCall::run(hand, comm, async |started| {
                collective::bcast(started, &mut out, root).await
            });
            assert!(out.iter().all(|byte| *byte == root as u8), "bcast");
            ended
        }
        Call::Reduce | Call::Allreduce | Call::ReduceScatter => {
            return combine(call, bytes, root, hand, comm);
        }
        Call::Allgather => {
            let mut all = vec![0; bytes * ranks];
            all[me as usize * bytes..][..bytes].copy_from_slice(&mine);
            let ended = CollectiveCall::run(hand, comm, async |started| {
                collective::allgather_bytes(started, &mut all).await
            });
            for (rank, block) in all.chunks_exact(bytes).enumerate() {
                assert!(block.iter().all(|byte| *byte == rank as u8), "allgather");
            }
            ended
        }
        Call::Alltoall => {
            let (out, mut into) = (vec![me as u8; bytes * ranks], vec![0; bytes * ranks]);
            let ended = CollectiveCall::run(hand, comm, async |started| {
                collective::alltoall_bytes(started, &out, &mut into).await
            });
            for (rank, block) in into.chunks_exact(bytes).enumerate() {
                assert!(block.iter().all(|byte| *byte == rank as u8), "alltoall");
            }
            ended
        }
        Call::Gather | Call::Scatter => return deal(call, bytes, root, hand, comm),
    };
    ended.unwrap();
}

/// Runs a reduce, an allreduce or a reduce-scatter.
fn combine(call: Call, bytes: usize, root: u32, hand: Hand<'_>, comm: &Comm) {
    let me = comm.rank;
    let mine = vec![me as u8; bytes];
    let lengths = vec![bytes / RANKS as usize; RANKS as usize];
    let mut out = match call {
        Call::ReduceScatter => vec![0; lengths[0]],
        _ => vec![0; bytes],
    };
    let (input, output) = (UserMemory::of_const(&mine), UserMemory::of(&mut out));
    let ended = CollectiveCall::run(hand, comm, async |started| match call {
        Call::Reduce => {
            let output = (me == root).then_some(output);
            collective::reduce(started, input, output, root, &Sum).await
        }
        Call::Allreduce => collective::allreduce(started, input, output, &Sum).await,
        _ => collective::reduce_scatter(started, input, &lengths, output, &Sum).await,
    });
    ended.unwrap();
    let is_here = call != Call::Reduce || me == root;
    assert!(!is_here || is_sum(&out), "{call:?}");
}

/// Runs a gather or a scatter.
fn deal(call: Call, bytes: usize, root: u32, hand: Hand<'_>, comm: &Comm) {
    let (ranks, me) = (RANKS as usize, comm.rank);
    let mine = vec![me as u8; bytes];
    let to = match me == root {
        true => CollectiveRoot::Here,
        false => CollectiveRoot::There(root),
    };
    let ended = if call == Call::Gather {
        let mut all = vec![0; bytes * ranks];
        let blocks = blocks(&mut all, bytes);
        let mine = Payload::Dense(UserMemory::of_const(&mine));
        let ended = CollectiveCall::run(hand, comm, async |started| {
            match started.shape().choice.gather {
                Gather::Tree => collective::gather_tree(started, Some(&mine), &blocks, to).await,
                _ => collective::gather_equal(started, Some(&mine), &blocks, to).await,
            }
        });
        for (rank, block) in all.chunks_exact(bytes).enumerate() {
            let is_right = block.iter().all(|byte| *byte == rank as u8);
            assert!(me != root || is_right, "gather");
        }
        ended
    } else {
        let mut out = vec![0; bytes];
        let mut all: Vec<u8> = (0..RANKS)
            .flat_map(|rank| vec![rank as u8; bytes])
            .collect();
        let blocks = blocks(&mut all, bytes);
        let place = Payload::Dense(UserMemory::of(&mut out));
        let ended = CollectiveCall::run(hand, comm, async |started| {
            match started.shape().choice.scatter {
                Scatter::Tree => collective::scatter_tree(started, &blocks, Some(&place), to).await,
                Scatter::Direct => collective::scatter(started, &blocks, Some(&place), to).await,
                _ => collective::scatter_equal(started, &blocks, Some(&place), to).await,
            }
        });
        assert_eq!(out, mine, "scatter");
        ended
    };
    ended.unwrap();
}

/// Whether `words` are the sum of the words of all ranks. Each byte of a rank's words is the number of the rank.
fn is_sum(words: &[u8]) -> bool {
    let word = |rank: u32| u64::from_ne_bytes([rank as u8; 8]);
    let sum: u64 = (0..RANKS).map(word).fold(0, u64::wrapping_add);
    words.chunks(8).all(|word| word == sum.to_ne_bytes())
}

fn blocks(all: &mut [u8], bytes: usize) -> Vec<Payload> {
    let blocks = all.chunks_exact_mut(bytes).map(UserMemory::of);
    blocks.map(Payload::Dense).collect()
}

/// The selected algorithm may be slower than another algorithm by this factor.
fn noise(call: Call, bytes: usize) -> f64 {
    match call {
        // The selected algorithm sends the lengths of blocks first, so that ranks that disagree about them complete.
        Call::Gather | Call::Scatter if bytes > 1 << 10 => 1.2,
        _ => 1.05,
    }
}

#[test]
fn the_chosen_internode_algorithm_is_the_fastest() {
    use Call::{
        Allgather, Allreduce, Alltoall, Barrier, Bcast, Gather, Reduce, ReduceScatter, Scatter,
    };
    println!("{NODES} nodes of {EACH} ranks: us a call, and packets between nodes");
    let mut slower = Vec::new();
    for (call, sizes, others) in [
        (Barrier, &[0][..], &["nodes", "rounds", "tree"][..]),
        (Bcast, &[8, 4 << 10, 64 << 10, 1 << 20], &["nodes", "tree"]),
        (
            Reduce,
            &[8, 4 << 10, 16 << 10, 64 << 10],
            &["one leader", "all lead", "tree"],
        ),
        (Reduce, &[256 << 10, 1 << 20], &["all lead", "nodes' ring"]),
        (
            ReduceScatter,
            &[512, 4 << 10, 16 << 10, 64 << 10],
            &["one leader", "all lead", "nodes' ring", "rooted"],
        ),
        (
            ReduceScatter,
            &[256 << 10, 1 << 20],
            &["all lead", "nodes' ring"],
        ),
        (
            Allreduce,
            &[8, 4 << 10],
            &["one leader", "all lead", "rounds", "rooted", "halves"],
        ),
        (
            Allreduce,
            &[16 << 10, 64 << 10],
            &["one leader", "all lead", "halves"],
        ),
        (Allreduce, &[256 << 10], &["halves", "ring"]),
        (Allreduce, &[1 << 20], &["all lead"]),
        (Allgather, &[8, 256], &["nodes", "rounds"]),
        (Alltoall, &[8, 64, 128, 256], &["nodes", "rounds", "direct"]),
        (Gather, &[8, 256, 4 << 10], &["nodes", "tree", "direct"]),
        (Scatter, &[8, 256, 4 << 10], &["nodes", "tree", "direct"]),
    ] {
        for bytes in sizes {
            let chosen = cost(call, *bytes, "auto");
            let mut line = format!("{call:?} of {bytes} B: auto {chosen}");
            let mut least_us = f64::INFINITY;
            for algorithm in others {
                let other = cost(call, *bytes, algorithm);
                line += &format!(", {algorithm} {other}");
                least_us = least_us.min(other.us);
            }
            println!("{line}");
            if chosen.us > noise(call, *bytes) * least_us {
                slower.push(line);
            }
        }
    }
    assert_eq!(slower, Vec::<String>::new());
}
