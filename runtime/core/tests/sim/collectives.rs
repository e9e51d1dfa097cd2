// SPDX-License-Identifier: MIT OR Apache-2.0
//! The collective of a phase, and what each rank must find afterwards.

use runtime::{Comm, Visit, collective};

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
    };
    match collective.kind {
        CollectiveKind::Barrier => {
            collective::barrier(visit, comm).unwrap();
            let entered = shared.entered.borrow()[&number];
            assert_eq!(entered, comm.size(), "left before all had entered");
        }
        CollectiveKind::Bcast => call.bcast(visit),
        CollectiveKind::Reduce => call.reduce(visit),
        CollectiveKind::Allreduce => call.allreduce(visit),
        CollectiveKind::Gather => call.gather(visit),
        CollectiveKind::Scatter => call.scatter(visit),
        CollectiveKind::Allgather => call.allgather(visit),
        CollectiveKind::Alltoall => call.alltoall(visit),
    }
}

struct Call<'a> {
    name: u64,
    it: Collective,
    comm: &'a Comm,
}

impl Call<'_> {
    /// Block `to` of what rank `from` brings.
    fn block(&self, from: u32, to: u32) -> &'static [u8] {
        content(
            self.name | u64::from(from) << 8 | u64::from(to),
            self.it.bytes,
        )
    }

    /// The same block of every rank, in rank order.
    fn column(&self, to: u32) -> Vec<u8> {
        let ranks = 0..self.comm.size();
        ranks
            .flat_map(|from| self.block(from, to))
            .copied()
            .collect()
    }

    /// All blocks of one rank.
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

    fn bytes(&self) -> usize {
        self.it.bytes as usize
    }

    fn bcast<V: Visit>(&self, visit: V) {
        let mut bytes = vec![0; self.bytes()];
        if self.is_root() {
            bytes.copy_from_slice(self.block(self.it.root, 0));
        }
        collective::bcast(visit, self.comm, &mut bytes, self.it.root).unwrap();
        assert!(bytes == self.block(self.it.root, 0), "bcast");
    }

    fn reduced(&self) -> Vec<u8> {
        let mut total = self.block(self.comm.size() - 1, 0).to_vec();
        for rank in (0..self.comm.size() - 1).rev() {
            after(self.block(rank, 0), &mut total);
        }
        total
    }

    fn reduce<V: Visit>(&self, visit: V) {
        let mut bytes = self.mine();
        collective::reduce(visit, self.comm, &mut bytes, self.it.root, &after).unwrap();
        assert!(!self.is_root() || bytes == self.reduced(), "reduce");
    }

    fn allreduce<V: Visit>(&self, visit: V) {
        let mut bytes = self.mine();
        collective::allreduce(visit, self.comm, &mut bytes, &after).unwrap();
        assert!(bytes == self.reduced(), "allreduce");
    }

    fn gather<V: Visit>(&self, visit: V) {
        let mine = self.mine();
        let mut all = Vec::new();
        if self.is_root() {
            all.resize(self.bytes() * self.comm.size() as usize, 0);
            self.place(&mut all, &mine);
        }
        collective::gather(visit, self.comm, &mine, &mut all, self.it.root).unwrap();
        assert!(!self.is_root() || all == self.column(0), "gather");
    }

    fn scatter<V: Visit>(&self, visit: V) {
        let mut all = Vec::new();
        let mut mine = vec![0; self.bytes()];
        if self.is_root() {
            all = self.row(self.it.root);
            mine.copy_from_slice(self.block(self.it.root, self.comm.rank));
        }
        collective::scatter(visit, self.comm, &all, &mut mine, self.it.root).unwrap();
        assert!(mine == self.block(self.it.root, self.comm.rank), "scatter");
    }

    fn allgather<V: Visit>(&self, visit: V) {
        let mut all = vec![0; self.bytes() * self.comm.size() as usize];
        self.place(&mut all, &self.mine());
        collective::allgather(visit, self.comm, &mut all).unwrap();
        assert!(all == self.column(0), "allgather");
    }

    fn alltoall<V: Visit>(&self, visit: V) {
        let out = self.row(self.comm.rank);
        let mut into = vec![0; out.len()];
        self.place(&mut into, self.block(self.comm.rank, self.comm.rank));
        collective::alltoall(visit, self.comm, &out, &mut into).unwrap();
        assert!(into == self.column(self.comm.rank), "alltoall");
    }

    /// Puts this rank's own block into its place.
    fn place(&self, all: &mut [u8], block: &[u8]) {
        let at = self.comm.rank as usize * self.bytes();
        all[at..at + self.bytes()].copy_from_slice(block);
    }
}

/// `inout = input op inout`, where an item is the map `x -> a x + b` and the operation does one map after the other:
/// associative, and another result in another order.
fn after(input: &[u8], inout: &mut [u8]) {
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap());
    for (first, second) in input.chunks(16).zip(inout.chunks_mut(16)) {
        let (a, b) = (word(&first[..8]), word(&first[8..]));
        let (c, d) = (word(&second[..8]), word(&second[8..]));
        second[..8].copy_from_slice(&a.wrapping_mul(c).to_ne_bytes());
        second[8..].copy_from_slice(&b.wrapping_mul(c).wrapping_add(d).to_ne_bytes());
    }
}
