// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the collective of a phase of a random program, and checks the result at each rank.

use runtime::collective::{self, CollectiveRoot, Reducer, choice};
use runtime::{CollectiveCall, Comm, Payload, UserMemory, Visit};

use crate::plan::{Collective, CollectiveKind};
use crate::random::content;
use crate::rank::Shared;

/// Runs the collective of phase `number` for one rank and checks its result.
pub fn run<V: Visit>(visit: V, shared: &Shared, number: usize, comms: &[Comm]) {
    let collective = shared.plan.phases[number]
        .collective
        .expect("it is planned");
    let comm = &comms[collective.comm];
    *shared.entered.borrow_mut().entry(number).or_default() += 1;
    let call = Call {
        name: shared.plan.seed << 32 | (number as u64) << 16,
        it: collective,
        comm,
        op: match number % 2 {
            0 => Op::After,
            _ => Op::Sum,
        },
        choice: visit.visit(|universe| universe.shape().choice),
    };
    match collective.kind {
        CollectiveKind::Barrier => {
            CollectiveCall::run(visit, comm, async |call| collective::barrier(call).await).unwrap();
            let entered = shared.entered.borrow()[&number];
            assert_eq!(entered, comm.size(), "left before all had entered");
        }
        CollectiveKind::Bcast => call.bcast(visit),
        CollectiveKind::Reduce => call.reduce(visit),
        CollectiveKind::Allreduce => call.allreduce(visit),
        CollectiveKind::Gather => {
            call.gather(visit);
            call.gather_various(visit);
        }
        CollectiveKind::Scatter => {
            call.scatter(visit);
            call.scatter_various(visit);
        }
        CollectiveKind::Allgather => {
            call.allgather(visit);
            call.allgather_various(visit);
        }
        CollectiveKind::Alltoall => {
            call.alltoall(visit);
            call.alltoall_various(visit);
        }
        CollectiveKind::ReduceScatter => call.reduce_scatter(visit),
        CollectiveKind::Scan => call.scan(visit),
        CollectiveKind::Exscan => call.exscan(visit),
    }
}

struct Call<'a> {
    name: u64,
    it: Collective,
    comm: &'a Comm,
    op: Op,
    choice: choice::Choices,
}

impl Call<'_> {
    /// Block `to` of rank `from`.
    fn block(&self, from: u32, to: u32) -> &'static [u8] {
        content(
            self.name | u64::from(from) << 8 | u64::from(to),
            self.it.bytes,
        )
    }

    /// Block `to` of every rank, in rank order.
    fn column(&self, to: u32) -> Vec<u8> {
        let ranks = 0..self.comm.size();
        ranks
            .flat_map(|from| self.block(from, to))
            .copied()
            .collect()
    }

    /// All blocks of rank `from`.
    fn row(&self, from: u32) -> Vec<u8> {
        let ranks = 0..self.comm.size();
        ranks.flat_map(|to| self.block(from, to)).copied().collect()
    }

    fn mine(&self) -> Vec<u8> {
        self.block(self.comm.rank, 0).to_vec()
    }

    fn is_root(&self) -> bool {
        self.comm.rank == self.it.root
    }

    fn root(&self) -> CollectiveRoot {
        match self.is_root() {
            true => CollectiveRoot::Here,
            false => CollectiveRoot::There(self.it.root),
        }
    }

    fn bytes(&self) -> usize {
        self.it.bytes as usize
    }

    fn bcast<V: Visit>(&self, visit: V) {
        let mut bytes = vec![0; self.bytes()];
        if self.is_root() {
            bytes.copy_from_slice(self.block(self.it.root, 0));
        }
        self.run(visit, async |call| {
            collective::bcast(call, &mut bytes, self.it.root).await
        });
        assert!(bytes == self.block(self.it.root, 0), "bcast");
    }

    /// The combined data of the ranks below `end`, in rank order.
    fn combined(&self, end: u32) -> Vec<u8> {
        let mut total = self.block(end - 1, 0).to_vec();
        for rank in (0..end - 1).rev() {
            self.op.reduce(self.block(rank, 0), &mut total);
        }
        total
    }

    fn reduced(&self) -> Vec<u8> {
        self.combined(self.comm.size())
    }

    fn reduce<V: Visit>(&self, visit: V) {
        let mut bytes = self.mine();
        let memory = UserMemory::of(&mut bytes);
        let output = self.is_root().then_some(memory);
        self.run(visit, async |call| {
            collective::reduce(call, memory, output, self.it.root, &self.op).await
        });
        assert!(!self.is_root() || bytes == self.reduced(), "reduce");
    }

    fn allreduce<V: Visit>(&self, visit: V) {
        let (input, mut bytes) = (self.mine(), self.mine());
        let output = UserMemory::of(&mut bytes);
        for input in [UserMemory::of_const(&input), output] {
            self.run(visit, async |call| {
                collective::allreduce(call, input, output, &self.op).await
            });
            assert!(bytes == self.reduced(), "allreduce");
            bytes.copy_from_slice(&self.mine());
        }
    }

    fn reduce_scatter<V: Visit>(&self, visit: V) {
        let items = self.bytes() / 16;
        let size = self.comm.size() as usize;
        // Either all lengths are about equal, or they differ and some are 0.
        let end = |rank: usize| match self.it.root % 2 {
            0 => (items * rank / size) * 16,
            _ => (items * rank * rank / (size * size)) * 16,
        };
        let lengths: Vec<usize> = (0..size).map(|rank| end(rank + 1) - end(rank)).collect();
        let rank = self.comm.rank as usize;
        let (bytes, mut mine) = (self.mine(), vec![0; lengths[rank]]);
        let (input, output) = (UserMemory::of_const(&bytes), UserMemory::of(&mut mine));
        self.run(visit, async |call| {
            collective::reduce_scatter(call, input, &lengths, output, &self.op).await
        });
        assert!(
            mine == self.reduced()[end(rank)..end(rank + 1)],
            "reduce_scatter"
        );
    }

    fn scan<V: Visit>(&self, visit: V) {
        let mut bytes = self.mine();
        let memory = UserMemory::of(&mut bytes);
        self.run(visit, async |call| {
            collective::scan(call, memory, memory, &self.op).await
        });
        assert!(bytes == self.combined(self.comm.rank + 1), "scan");
    }

    fn exscan<V: Visit>(&self, visit: V) {
        let (mut mine, mut bytes) = (self.mine(), self.mine());
        let (input, output) = (UserMemory::of(&mut mine), UserMemory::of(&mut bytes));
        self.run(visit, async |call| {
            collective::exscan(call, input, output, &self.op).await
        });
        let expected = match self.comm.rank {
            0 => self.mine(),
            rank => self.combined(rank),
        };
        assert!(bytes == expected, "exscan");
    }

    fn gather<V: Visit>(&self, visit: V) {
        let mine = self.mine();
        let mut all = vec![0; if self.is_root() { self.all_bytes() } else { 0 }];
        let (mine, blocks) = (lent(&mine), self.blocks(&mut all));
        self.run(visit, async |call| match self.choice.gather {
            choice::Gather::Tree => {
                collective::gather_tree(call, Some(&mine), &blocks, self.root()).await
            }
            _ => collective::gather_equal(call, Some(&mine), &blocks, self.root()).await,
        });
        assert!(!self.is_root() || all == self.column(0), "gather");
    }

    fn gather_various<V: Visit>(&self, visit: V) {
        let mine = self.mine();
        let mine = lent(&mine[..self.part_bytes(self.comm.rank)]);
        let mut all = vec![0; if self.is_root() { self.all_bytes() } else { 0 }];
        let blocks = self.parts(&mut all);
        self.run(visit, async |call| {
            collective::gather_various(call, Some(&mine), &blocks, self.root()).await
        });
        assert!(!self.is_root() || all == self.column_of_parts(), "gatherv");
    }

    fn scatter<V: Visit>(&self, visit: V) {
        let mut all = match self.is_root() {
            true => self.row(self.it.root),
            false => Vec::new(),
        };
        let mut mine = vec![0; self.bytes()];
        let (blocks, target) = (self.blocks(&mut all), lent_to(&mut mine));
        self.run(visit, async |call| match self.choice.scatter {
            choice::Scatter::Tree => {
                collective::scatter_tree(call, &blocks, Some(&target), self.root()).await
            }
            _ => collective::scatter_equal(call, &blocks, Some(&target), self.root()).await,
        });
        assert!(mine == self.block(self.it.root, self.comm.rank), "scatter");
    }

    fn scatter_various<V: Visit>(&self, visit: V) {
        let mut all = match self.is_root() {
            true => self.row(self.it.root),
            false => Vec::new(),
        };
        let mut mine = vec![0; self.part_bytes(self.comm.rank)];
        let (blocks, target) = (self.parts(&mut all), lent_to(&mut mine));
        self.run(visit, async |call| {
            collective::scatter_various(call, &blocks, Some(&target), self.root()).await
        });
        let expected = self.block(self.it.root, self.comm.rank);
        assert!(mine == expected[..mine.len()], "scatterv");
    }

    fn allgather<V: Visit>(&self, visit: V) {
        let mut all = vec![0; self.all_bytes()];
        if self.travels_together() {
            self.place(&mut all, &self.mine());
            self.run(visit, async |call| {
                collective::allgather_bytes(call, &mut all).await
            });
        } else {
            let mine = self.mine();
            let (mine, blocks) = (lent(&mine), self.blocks(&mut all));
            self.run(visit, async |call| match self.choice.allgatherv {
                choice::Allgatherv::Ring => {
                    collective::allgather_ring(call, Some(&mine), &blocks).await
                }
                // All blocks are adjacent.
                _ => collective::allgather_various(call, Some(&mine), &blocks).await,
            });
        }
        assert!(all == self.column(0), "allgather");
    }

    fn allgather_various<V: Visit>(&self, visit: V) {
        let mine = self.mine();
        let mine = lent(&mine[..self.part_bytes(self.comm.rank)]);
        for in_place in [false, true] {
            let mut all = match in_place {
                true => self.column_of_parts(),
                false => vec![0; self.all_bytes()],
            };
            let blocks = self.parts(&mut all);
            let mine = (!in_place).then_some(&mine);
            self.run(visit, async |call| {
                collective::allgather_various(call, mine, &blocks).await
            });
            assert!(all == self.column_of_parts(), "allgatherv");
        }
    }

    fn alltoall<V: Visit>(&self, visit: V) {
        let mut out = self.row(self.comm.rank);
        let mut into = vec![0; out.len()];
        if self.travels_together() {
            self.run(visit, async |call| {
                collective::alltoall_bytes(call, &out, &mut into).await
            });
        } else {
            let (from, to) = (self.blocks(&mut out), self.blocks(&mut into));
            self.run(visit, async |call| {
                collective::alltoall(call, &from, &to).await
            });
        }
        assert!(into == self.column(self.comm.rank), "alltoall");
    }

    fn alltoall_various<V: Visit>(&self, visit: V) {
        let (ranks, me) = (self.comm.size(), self.comm.rank);
        // Number of bytes of its block that rank `to` receives from rank `from`.
        let bytes = |from: u32, to: u32| self.part_bytes(from + 2 * to);
        let part = |block: Payload, bytes| match block {
            Payload::Dense(memory) => Payload::Dense(memory.part(0..bytes)),
            block => block,
        };
        let mut out = self.row(me);
        let mut into = vec![0; out.len()];
        let to = (0..ranks).zip(self.blocks(&mut out));
        let to: Vec<Payload> = to.map(|(to, block)| part(block, bytes(me, to))).collect();
        let from = (0..ranks).zip(self.blocks(&mut into));
        let from: Vec<Payload> = from
            .map(|(from, block)| part(block, bytes(from, me)))
            .collect();
        self.run(visit, async |call| {
            collective::alltoall_various(call, &to, &from).await
        });
        let mut expected = self.column(me);
        for from in 0..ranks {
            let block = &mut expected[from as usize * self.bytes()..][..self.bytes()];
            block[bytes(from, me)..].fill(0);
        }
        assert!(into == expected, "alltoallv");
    }

    /// Runs a collective, which must succeed.
    fn run<V: Visit>(
        &self,
        visit: V,
        body: impl AsyncFnOnce(&CollectiveCall<V>) -> Result<(), runtime::Error>,
    ) {
        CollectiveCall::run(visit, self.comm, body).unwrap();
    }

    /// Whether the test uses the form of a collective for small equal blocks, not the general form. All ranks use the
    /// same form.
    fn travels_together(&self) -> bool {
        self.it.bytes <= 512
    }

    fn all_bytes(&self) -> usize {
        self.bytes() * self.comm.size() as usize
    }

    /// Cuts `all` into one block for each rank. If `all` is empty although blocks are not, returns no blocks.
    fn blocks(&self, all: &mut [u8]) -> Vec<Payload> {
        if all.is_empty() && self.bytes() > 0 {
            return Vec::new();
        }
        let (bytes, mut rest) = (self.bytes(), all);
        let block = |_| {
            let (block, others) = std::mem::take(&mut rest).split_at_mut(bytes);
            rest = others;
            lent_to(block)
        };
        (0..self.comm.size()).map(block).collect()
    }

    /// Number of bytes of its block that rank `rank` contributes in a collective with different lengths: all, half or
    /// none.
    fn part_bytes(&self, rank: u32) -> usize {
        self.bytes() * ((rank + self.it.root + 1) as usize % 3) / 2
    }

    /// The first [`part_bytes`](Self::part_bytes) bytes of each block of `all`; no parts if there are no blocks.
    fn parts(&self, all: &mut [u8]) -> Vec<Payload> {
        let blocks = (0..).zip(self.blocks(all));
        let part = |(rank, block): (u32, Payload)| match block {
            Payload::Dense(memory) => Payload::Dense(memory.part(0..self.part_bytes(rank))),
            block => block,
        };
        blocks.map(part).collect()
    }

    /// The expected result of a gather of these parts: the first part of each rank's block, followed by zeros.
    fn column_of_parts(&self) -> Vec<u8> {
        let mut column = self.column(0);
        for rank in 0..self.comm.size() {
            let end = (rank as usize + 1) * self.bytes();
            let rest = self.bytes() - self.part_bytes(rank);
            column[end - rest..end].fill(0);
        }
        column
    }

    /// Copies this rank's block to its place in `all`.
    fn place(&self, all: &mut [u8], block: &[u8]) {
        let at = self.comm.rank as usize * self.bytes();
        all[at..at + self.bytes()].copy_from_slice(block);
    }
}

fn lent(bytes: &[u8]) -> Payload {
    Payload::Dense(UserMemory::of_const(bytes))
}

fn lent_to(bytes: &mut [u8]) -> Payload {
    Payload::Dense(UserMemory::of(bytes))
}

/// Operations on items of two 64-bit words.
#[derive(Clone, Copy)]
enum Op {
    /// An item is the map `x -> a x + b`, and the operation composes maps: associative, but not commutative.
    After,
    /// An item is a pair of numbers, which are added.
    Sum,
}

impl Reducer for Op {
    fn reduce(&self, input: &[u8], inout: &mut [u8]) {
        let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap());
        for (first, second) in input.chunks(16).zip(inout.chunks_mut(16)) {
            let (a, b) = (word(&first[..8]), word(&first[8..]));
            let (c, d) = (word(&second[..8]), word(&second[8..]));
            let (high, low) = match self {
                Self::After => (a.wrapping_mul(c), b.wrapping_mul(c).wrapping_add(d)),
                Self::Sum => (a.wrapping_add(c), b.wrapping_add(d)),
            };
            second[..8].copy_from_slice(&high.to_ne_bytes());
            second[8..].copy_from_slice(&low.to_ne_bytes());
        }
    }

    fn item_bytes(&self) -> usize {
        16
    }

    fn commutes(&self) -> bool {
        matches!(self, Self::Sum)
    }
}
