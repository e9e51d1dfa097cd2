// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranks that a simulated server of PMI-1 has started, each a thread of this process.

use super::*;
use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Barrier, Mutex};
use std::thread::{self, JoinHandle};

use std::io::{BufRead, BufReader, Write};

/// A server for some ranks, whose name is of one test alone.
struct Server {
    name: String,
    size: u32,
    kept: Mutex<HashMap<String, String>>,
    fence: Barrier,
}

impl Server {
    fn new(test: &str, size: u32) -> Arc<Self> {
        Arc::new(Self {
            name: format!("{test}-{}", std::process::id()),
            size,
            kept: Mutex::default(),
            fence: Barrier::new(size as usize),
        })
    }

    /// A socket for one rank.
    fn serve(self: &Arc<Self>) -> OwnedFd {
        let (theirs, ours) = UnixStream::pair().unwrap();
        let server = Arc::clone(self);
        thread::spawn(move || server.answer(&ours));
        theirs.into()
    }

    fn answer(&self, stream: &UnixStream) {
        let lines = BufReader::new(stream.try_clone().unwrap()).lines();
        for line in lines.map_while(Result::ok) {
            let words = pmi::PmiMessage::of_line(&line);
            let key = words.get("key").unwrap_or_default();
            let answer = match words.command() {
                "init" => pmi::PmiMessage::new("response_to_init"),
                "get_maxes" => pmi::PmiMessage::new("maxes").with("vallen_max", 256),
                "get_appnum" => pmi::PmiMessage::new("appnum").with("appnum", 0),
                "get_my_kvsname" => pmi::PmiMessage::new("my_kvsname").with("kvsname", &self.name),
                "put" => {
                    let value = words.get("value").unwrap().to_owned();
                    self.kept.lock().unwrap().insert(key.to_owned(), value);
                    pmi::PmiMessage::new("put_result")
                }
                "get" => match self.kept.lock().unwrap().get(key) {
                    Some(value) => pmi::PmiMessage::new("get_result").with("value", value),
                    None => pmi::PmiMessage::new("get_result").with("rc", 1),
                },
                "barrier_in" => {
                    self.fence.wait();
                    pmi::PmiMessage::new("barrier_out")
                }
                "finalize" => pmi::PmiMessage::new("finalize_ack"),
                _ => return,
            };
            (&*stream).write_all(answer.line().as_bytes()).unwrap();
        }
    }

    fn manager(self: &Arc<Self>, rank: u32) -> PmiClient {
        let client = pmi::Client::begin(self.serve(), pmi::Version::One, rank, self.size);
        PmiClient::Pmi(client.unwrap())
    }

    /// All ranks, born on one node.
    fn births(self: &Arc<Self>) -> Vec<Born> {
        let births: Vec<JoinHandle<Born>> = (0..self.size)
            .map(|rank| {
                let server = Arc::clone(self);
                thread::spawn(move || Managed::join(server.manager(rank)).unwrap())
            })
            .collect();
        births
            .into_iter()
            .map(|birth| birth.join().unwrap())
            .collect()
    }
}

#[test]
fn ranks_of_a_node_share_one_segment_and_know_each_other() {
    let server = Server::new("one-node", 5);
    let births = server.births();
    let first = &births[0].boot;
    for (rank, born) in (0..).zip(&births) {
        let boot = &born.boot;
        assert_eq!((boot.rank, boot.size, boot.local_rank), (rank, 5, rank));
        assert_eq!(boot.ranks, Ranks::first(5));
        assert_eq!((boot.job, boot.stream_key), (first.job, first.stream_key));
        assert!(!boot.over_hosts && boot.leader.is_some());
    }
    let files = births.iter().map(|born| {
        let stat = rustix::fs::fstat(born.segment.as_ref().unwrap()).unwrap();
        (stat.st_dev, stat.st_ino)
    });
    let files: std::collections::HashSet<_> = files.collect();
    assert_eq!(files.len(), 1);
}

/// What a rank hears, in the end.
fn hears(managed: &mut Managed) -> ToRank {
    let since = std::time::Instant::now();
    while since.elapsed().as_secs() < 20 {
        if let ControlInput::Words(words) = managed.hear() {
            return words;
        }
        thread::yield_now();
    }
    panic!("nothing is heard");
}

#[test]
fn a_rank_that_ends_without_a_word_is_lost_to_its_neighbours_alone() {
    let server = Server::new("lost", 4);
    let mut births = server.births();
    let leader = births[0].boot.leader.unwrap();
    let guests: Vec<u32> = (0..4).filter(|rank| *rank != leader).collect();
    // One says that it is through, another one does not.
    births[guests[0] as usize].managed.finalized().unwrap();
    let place = |births: &[Born], rank| births.iter().position(|born| born.boot.rank == rank);
    for rank in [guests[0], guests[1]] {
        let place = place(&births, rank).unwrap();
        drop(births.remove(place));
    }
    for rank in [leader, guests[2]] {
        let place = place(&births, rank).unwrap();
        let expected = ToRank::Lost {
            rank: guests[1],
            why: "its process has ended without MPI_Finalize".to_owned(),
        };
        assert_eq!(hears(&mut births[place].managed), expected);
    }
    // The leader is through, and then ends.
    let of_leader = place(&births, leader).unwrap();
    births[of_leader].managed.finalized().unwrap();
    drop(births.remove(of_leader));
    assert!(matches!(births[0].managed.hear(), ControlInput::Nothing));
}

#[test]
fn a_leader_that_ends_without_a_word_is_lost() {
    let server = Server::new("leader", 3);
    let mut births = server.births();
    let leader = births[0].boot.leader.unwrap();
    births.retain(|born| born.boot.rank != leader);
    for born in &mut births {
        let words = hears(&mut born.managed);
        assert!(matches!(words, ToRank::Lost { rank, .. } if rank == leader));
    }
}

#[test]
fn ranks_of_other_nodes_are_found_by_what_they_left_with_the_server() {
    // Each is alone on its node, as their names there tell.
    let server = Server::new("nodes", 3);
    let places: Vec<JoinHandle<Managed>> = (0..3)
        .map(|rank| {
            let server = Arc::clone(&server);
            thread::spawn(move || {
                let manager = server.manager(rank);
                let keys = JobKeys::random().unwrap();
                let cpus = vec![u64::from(rank != 1)];
                let mut boot = boot_of(&manager, (&[rank], cpus), &keys).unwrap();
                assert!(boot.over_hosts);
                let mut managed = Managed::new(manager, NodeRole::None);
                let record = vec![u8::try_from(rank).unwrap(); 200 * rank as usize / 2];
                managed.meet_others(&mut boot, &record).unwrap();
                // Rank 1 has no CPU of its own.
                assert!(boot.crowded);
                assert_eq!(boot.nodes.map(|nodes| nodes.to_string()).unwrap(), "0+3x1");
                managed
            })
        })
        .collect();
    let mut places: Vec<Managed> = places.into_iter().map(|one| one.join().unwrap()).collect();
    places[0].take(&ToDaemon::LookUp { rank: 0, of: 2 });
    places[0].take(&ToDaemon::LookUp { rank: 0, of: 0 });
    let record = Record::new(&[2; 200]).unwrap();
    assert_eq!(hears(&mut places[0]), ToRank::Record { rank: 2, record });
    assert!(matches!(
        hears(&mut places[0]),
        ToRank::NoRecord { rank: 0, .. }
    ));
    places[0].take(&ToDaemon::Quiet { rank: 0 });
    assert!(matches!(places[0].hear(), ControlInput::Nothing));
    for rank in [1, 2] {
        places[rank as usize].take(&ToDaemon::Quiet { rank });
    }
    for place in &mut places {
        assert_eq!(hears(place), ToRank::AllQuiet);
    }
}

#[test]
fn a_place_that_no_job_has_is_told() {
    check_place(2, 3).unwrap();
    for (rank, size) in [(3, 3), (0, 0), (0, u32::MAX), (u32::MAX - 1, u32::MAX)] {
        let words = check_place(rank, size).unwrap_err().to_string();
        assert!(
            words.contains(&format!("is rank {rank} of {size}, expected")),
            "{words}"
        );
    }
}

#[test]
fn keys_and_bytes_are_read_back_from_their_text() {
    let keys = JobKeys::random().unwrap();
    let read = JobKeys::parse(&keys.to_string()).unwrap();
    assert_eq!(
        (keys.job, keys.network, keys.stream),
        (read.job, read.network, read.stream)
    );
    assert!(keys.network < 1 << 31);
    assert!(JobKeys::parse("00").is_err() && JobKeys::parse("").is_err());
    assert_eq!(unhex(&hex(&[0, 7, 255])), Some(vec![0, 7, 255]));
    assert_eq!((unhex("+1"), unhex("123"), unhex("ü")), (None, None, None));
}
