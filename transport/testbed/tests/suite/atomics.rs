// SPDX-License-Identifier: MIT OR Apache-2.0
//! Behaviours of atomic operations.

use transport::{Atomic, Head, Mover, Peer, RemoteKey, WorkOutcome};

use testbed::memory::AtomicWords;
use testbed::{TestRank, head};

/// Each rank has a counter to which other ranks add, and a word that one of them takes. If adapters perform atomic
/// operations, the owner itself does not use its words: an adapter and a CPU never share a word.
pub async fn atomics(rank: &mut TestRank) {
    const ROUNDS: u64 = 20;
    let mine = AtomicWords::new(&mut rank.fabric, 2);
    for peer in 0..rank.size {
        let key = mine.export(&mut rank.fabric, peer);
        rank.send_key(peer, key).await;
    }
    let mut keys = Vec::new();
    for peer in 0..rank.size {
        keys.push(rank.receive_key(peer).await);
    }
    let by_cpu = Some(Mover::Caller);
    let are_apart = (0..rank.size).any(|peer| rank.fabric.caps(Peer(peer)).atomics != by_cpu);
    let size = rank.size;
    let users = |owner: u32| (0..size).filter(move |user| !are_apart || *user != owner);
    let owners: Vec<u32> = (0..rank.size)
        .filter(|owner| users(*owner).any(|user| user == rank.me))
        .collect();
    let mut all_sums = vec![[0; 4]; rank.size as usize];
    for round in 0..ROUNDS {
        for owner in &owners {
            let sums = &mut all_sums[*owner as usize];
            let key = keys[*owner as usize];
            add_once(rank, *owner, key, round + 1, sums).await;
        }
    }
    for owner in &owners {
        let sums = &mut all_sums[*owner as usize];
        elect(rank, *owner, keys[*owner as usize], sums).await;
        refuse(rank, *owner, keys[*owner as usize]).await;
    }
    for owner in &owners {
        for word in all_sums[*owner as usize] {
            rank.send(*owner, Head { word, ..head(8) }, &[]).await;
        }
    }
    let mut sum = [0; 4];
    let users: Vec<u32> = users(rank.me).collect();
    for user in users {
        for place in &mut sum {
            *place += rank.receive(user).await.0.word;
        }
    }
    let [added, doubtful, elected, undecided] = sum;
    let (counter, word) = (mine.get(0), mine.get(1));
    assert!(
        (added..=added + doubtful).contains(&counter),
        "{counter} of {added} and perhaps {doubtful}"
    );
    assert!(elected <= 1, "{elected} ranks were elected");
    assert!(elected == 0 || word != 0);
    assert!(undecided != 0 || (elected == 1) == (word != 0));
    rank.barrier().await;
}

/// Adds to a counter, whose value must not decrease. `sums[0]` is the sum of the additions, and `sums[1]` the sum of
/// those whose outcome is not determined.
async fn add_once(rank: &mut TestRank, owner: u32, key: RemoteKey, add: u64, sums: &mut [u64; 4]) {
    let (outcome, old) = rank.change(owner, Atomic::FetchAdd { add }, key, 0).await;
    match outcome {
        WorkOutcome::Done => {
            assert!(old >= sums[0], "{old} after {}", sums[0]);
            sums[0] += add;
        }
        WorkOutcome::Unknown => sums[1] += add,
        outcome => assert!(!rank.was_done(outcome)),
    }
}

/// Takes a word, if it has its original value. `sums[2]` counts the ranks that have found that value (one at most), and
/// `sums[3]` the operations whose outcome is not determined.
async fn elect(rank: &mut TestRank, owner: u32, key: RemoteKey, sums: &mut [u64; 4]) {
    let swap = u64::from(rank.me) + 1;
    let atomic = Atomic::CompareSwap { compare: 0, swap };
    let (outcome, old) = rank.change(owner, atomic, key, 8).await;
    match outcome {
        WorkOutcome::Done => {
            assert!(old <= rank.size.into());
            sums[2] += u64::from(old == 0);
        }
        WorkOutcome::Unknown => sums[3] += 1,
        outcome => assert!(!rank.was_done(outcome)),
    }
}

/// Checks that operations on unaligned memory, or memory beyond the end, are refused.
async fn refuse(rank: &mut TestRank, owner: u32, key: RemoteKey) {
    let add = Atomic::FetchAdd { add: 1 << 40 };
    for offset in [4, 9, 16, u64::MAX - 7] {
        let (outcome, _) = rank.change(owner, add, key, offset).await;
        let is_refused = matches!(outcome, WorkOutcome::BadKey | WorkOutcome::Unreachable);
        assert!(is_refused, "{outcome:?} at {offset} of {key:?}");
    }
}
