// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a job on a simulated network. Its ranks are coroutines of one thread, and the seed determines which rank has
//! the next turn.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use corosensei::Coroutine;
use runtime::var::{ControlVariable, ROWS, Range, Scope, VariableValues};
use runtime::{Peer, RequestState, Universe};
use transport::{Fabric, SimNet, SimStats};
use wireup::NodeMap;

use crate::log::{self, Log};
use crate::plan::{Plan, Settings};
use crate::random::Random;
use crate::rank::{Rank, Seat, Shared};

/// The record of a run. Two runs with the same seed must have equal records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace {
    pub turns: u64,
    pub time_ns: u64,
    pub net: SimStats,
    pub unexpected: u64,
    pub matches: u64,
}

/// Runs a program to its end, and checks the results of all ranks.
pub fn run(plan: Plan) -> Trace {
    let mut job = Job::new(plan);
    job.run_ranks();
    job.settle();
    job.check_rest();
    log::check(&job.shared.plan, &job.shared.logs.borrow());
    job.trace()
}

/// The node of each rank: in blocks, cyclically, or at random. `None`: the job has no map of nodes.
fn nodes(random: &mut Random, ranks: u32) -> Option<NodeMap> {
    let count = random.pick(&[2, 2, 3, 4]);
    let each = ranks.div_ceil(count);
    match random.below(4) {
        0 => None,
        1 => NodeMap::new((0..ranks).map(|rank| rank / each)),
        2 => NodeMap::new((0..ranks).map(|rank| rank % count)),
        _ => NodeMap::new((0..ranks).map(|_| random.pick(&[0, 1, 2, 3]).min(count - 1))),
    }
}

struct Job {
    net: SimNet,
    shared: Rc<Shared>,
    ranks: Vec<Coroutine<(), (), ()>>,
    random: Random,
    turns: u64,
    /// A rank that seldom gets a turn; `None`: all ranks get turns equally often.
    starved: Option<usize>,
    /// Percentage of turns in which the network advances and no rank makes a step.
    net_turns: u64,
}

impl Job {
    fn new(plan: Plan) -> Self {
        let mut random = Random(plan.seed ^ 0x7412_0b5e);
        let net = SimNet::new(plan.net);
        let values = values(plan.settings);
        let count = plan.ranks();
        let nodes = nodes(&mut random, count);
        let seat = |rank| {
            let fabric = Fabric::simulated(&net, transport::Peer(rank));
            let universe = Universe::new(fabric, Peer(rank), count, &values);
            let universe = match &nodes {
                Some(nodes) => universe.over_nodes(nodes.clone()),
                None => universe,
            };
            Seat::new(universe, plan.seed ^ u64::from(rank) << 40)
        };
        let seats = (0..count).map(seat).collect();
        let logs = (0..count).map(|_| Log::default()).collect();
        let shared = Rc::new(Shared {
            plan,
            seats,
            logs: RefCell::new(logs),
            entered: RefCell::new(HashMap::new()),
        });
        let rank = |me| {
            let shared = shared.clone();
            Coroutine::new(move |yielder, ()| Rank::run(&shared, me, yielder))
        };
        Self {
            ranks: (0..count).map(rank).collect(),
            starved: random.percent(30).then(|| random.index(count as usize)),
            net_turns: random.pick(&[10, 50, 90]),
            net,
            shared,
            random,
            turns: 0,
        }
    }

    fn run_ranks(&mut self) {
        let mut still = (0, self.position());
        while self.ranks.iter().any(|rank| !rank.done()) {
            self.turn();
            let position = self.position();
            still = match position == still.1 {
                true => (still.0 + 1, position),
                false => (0, position),
            };
            if still.0 > TURNS_WITHOUT_CHANGE || self.turns > MAX_TURNS {
                panic!("the job stands still:\n{}", self.describe());
            }
        }
    }

    fn turn(&mut self) {
        self.turns += 1;
        if self.random.percent(self.net_turns) {
            self.net.advance();
            return;
        }
        let at = self.random.index(self.ranks.len());
        if self.starved == Some(at) && !self.random.percent(5) {
            self.net.advance();
            return;
        }
        if !self.ranks[at].done() {
            self.ranks[at].resume(());
        }
    }

    /// A pair of numbers that changes whenever something happens.
    fn position(&self) -> (u64, u64) {
        let done = self.shared.seats.iter().map(|seat| seat.done.get()).sum();
        (done, self.net.stats().packets)
    }

    /// To be called when all ranks have finalized. In a real job the ranks would have exited before frames that are
    /// still in flight arrive. Here the ranks take these frames in, so that errors show.
    fn settle(&mut self) {
        let mut quiet = 0;
        while quiet < QUIET_TURNS {
            let mut moved = self.net.advance() && !self.net_only_reschedules();
            for seat in &self.shared.seats {
                moved |= seat.universe.borrow_mut().progress();
            }
            self.turns += 1;
            assert!(self.turns < MAX_TURNS, "it never settles");
            quiet = if moved { 0 } else { quiet + 1 };
        }
    }

    /// Whether the network takes ranks off their processors again and again, without end. Then the network always has a
    /// next event.
    fn net_only_reschedules(&self) -> bool {
        self.net.config().away_permille > 0
    }

    fn check_rest(&self) {
        for (rank, seat) in self.shared.seats.iter().enumerate() {
            let is_drained = seat.universe.borrow_mut().is_drained();
            assert!(is_drained, "rank {rank} has frames to send");
            let universe = seat.universe.borrow();
            let counters = universe.messages.engine().counters();
            assert_eq!(
                universe.messages.engine().arena().live(),
                0,
                "rank {rank} keeps slots:\n{}",
                self.describe()
            );
            let rest = (
                counters.posted_length,
                counters.unexpected_length,
                counters.kept_bytes,
            );
            assert_eq!(rest, (0, 0, 0), "queues of rank {rank} are not empty");
            assert_eq!(counters.refused, 0, "rank {rank} refused an honest frame");
            assert_eq!(
                universe.messages.transport_stats().refused,
                0,
                "rank {rank}"
            );
            let (kept, most) = (counters.kept_bytes_peak, self.shared.plan.most_kept);
            assert!(
                kept <= most,
                "rank {rank} kept {kept} bytes, more than {most}"
            );
        }
    }

    fn describe(&self) -> String {
        let mut text = format!("after {} turns, {:?}\n", self.turns, self.net.stats());
        for (rank, seat) in self.shared.seats.iter().enumerate() {
            let Ok(mut universe) = seat.universe.try_borrow_mut() else {
                continue;
            };
            let done = if self.ranks[rank].done() {
                ", done"
            } else {
                ""
            };
            text += &format!("rank {rank}{done}, drained {}\n", universe.is_drained());
            let arena = universe.messages.engine().arena();
            for id in arena.iter() {
                let fields = arena.fields(id);
                if fields.state != RequestState::Inactive {
                    text += &format!("  {id:?} {fields:?}\n");
                }
            }
        }
        text
    }

    fn trace(&self) -> Trace {
        let counters = |count: fn(&Universe) -> u64| {
            let seats = self.shared.seats.iter();
            seats.map(|seat| count(&seat.universe.borrow())).sum()
        };
        Trace {
            turns: self.turns,
            time_ns: self.net.now_ns(),
            net: self.net.stats(),
            unexpected: counters(|universe| universe.messages.engine().counters().unexpected),
            matches: counters(|universe| universe.messages.engine().counters().match_attempts),
        }
    }
}

fn values(settings: Settings) -> VariableValues {
    let words = [
        ("RMPI_EAGER_LIMIT", settings.eager_limit.to_string()),
        ("RMPI_UNEXPECTED_BUDGET", settings.budget.to_string()),
        // `RMPI_SINGLE_COPY` must not be `auto`, because then measured times would influence the run.
        (
            "RMPI_SINGLE_COPY",
            if settings.single_copy { "on" } else { "off" }.to_owned(),
        ),
        (
            "RMPI_COLLECTIVES",
            match (settings.flat, settings.choices % 2) {
                (true, _) => "flat",
                (false, 0) => "rounds",
                (false, _) => "auto",
            }
            .to_owned(),
        ),
        ("RMPI_SLICE_LIMIT", settings.slice_limit.to_string()),
    ];
    let chosen = choices(settings.choices);
    let words = words.map(|(name, text)| (name.to_owned(), text));
    let words = words.into_iter().chain(chosen);
    let (values, warnings) = VariableValues::from_environment(words);
    assert_eq!(warnings, Vec::<String>::new());
    values
}

/// Values for the variables that select algorithms, for limits by which small data count as large, and for the limits
/// of unexpected data.
fn choices(seed: u64) -> Vec<(String, String)> {
    if seed == 0 {
        return Vec::new();
    }
    let mut random = Random(seed);
    let is_choice =
        |row: &&ControlVariable| row.scope == Scope::AllEqual && row.name != "RMPI_COLLECTIVES";
    let mut chosen = Vec::new();
    for row in ROWS.iter().filter(is_choice) {
        if let Range::Words(words) = row.range {
            // For odd seeds, some algorithms are `auto`, the first word. Then more calls can go by node.
            let is_left = seed % 2 == 1 && random.pick(&[true, false]);
            let word = if is_left {
                words[0]
            } else {
                random.pick(words)
            };
            chosen.push((row.name.to_owned(), word.to_owned()));
        }
    }
    let sizes = [
        (
            "RMPI_BCAST_SLICE_LIMIT",
            random.pick(&[0, 1000, 1_u64 << 40]),
        ),
        ("RMPI_RING_LIMIT", random.pick(&[0, 1000, 1_u64 << 40])),
        (
            "RMPI_NODE_SLICE_LIMIT",
            random.pick(&[0, 1 << 10, 1_u64 << 40]),
        ),
        ("RMPI_BCAST_SEGMENT", random.pick(&[64, 1000, 1 << 16])),
        ("RMPI_ALLTOALL_WINDOW", random.pick(&[0, 1, 2])),
        ("RMPI_UNEXPECTED_MESSAGES", random.pick(&[3, 1 << 18])),
        ("RMPI_UNEXPECTED_RELEASE", random.pick(&[0, 50, 100])),
    ];
    let sizes = sizes.map(|(name, size)| (name.to_owned(), size.to_string()));
    chosen.extend(sizes);
    chosen
}

const TURNS_WITHOUT_CHANGE: u64 = 20_000;
const MAX_TURNS: u64 = 5_000_000;
const QUIET_TURNS: u64 = 300;
