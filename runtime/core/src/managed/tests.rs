// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of ranks that a simulated PMI-1 server has started. Each rank is a thread of this process.

use super::*;
use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Barrier, Mutex};
use std::thread::{self, JoinHandle};

use std::io::{BufRead, BufReader, Write};

/// A server for some ranks; its name is unique to one test.
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

    /// Starts the server for one rank, and returns the rank's end of the socket.
    fn serve(self: &Arc<Self>) -> OwnedFd {
        let (theirs, ours) = UnixStream::pair().unwrap();
        let server = Arc::clone(self);
        thread::spawn(move || server.answer(&ours));
        theirs.into()
    }

    fn answer(&self, stream: &UnixStream) {
        let lines = BufReader::new(stream.try_clone().unwrap()).lines();
        for line in lines.map_while(Result::ok) {
            let request = pmi::PmiMessage::of_line(&line);
            let key = request.get("key").unwrap_or_default();
            let answer = match request.command() {
                "init" => pmi::PmiMessage::new("response_to_init"),
                "get_maxes" => pmi::PmiMessage::new("maxes").with("vallen_max", 256),
                "get_appnum" => pmi::PmiMessage::new("appnum").with("appnum", 0),
                "get_my_kvsname" => pmi::PmiMessage::new("my_kvsname").with("kvsname", &self.name),
                "put" => {
                    let value = request.get("value").unwrap().to_owned();
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

    /// All ranks, joined on one node.
    fn joined_jobs(self: &Arc<Self>) -> Vec<JoinedJob> {
        let joined_jobs: Vec<JoinHandle<JoinedJob>> = (0..self.size)
            .map(|rank| {
                let server = Arc::clone(self);
                thread::spawn(move || Managed::join(server.manager(rank)).unwrap())
            })
            .collect();
        joined_jobs
            .into_iter()
            .map(|joining| joining.join().unwrap())
            .collect()
    }
}

#[test]
fn ranks_of_a_node_share_one_segment_and_job_keys() {
    let server = Server::new("one-node", 5);
    let joined_jobs = server.joined_jobs();
    let first = &joined_jobs[0].boot;
    for (rank, joined) in (0..).zip(&joined_jobs) {
        let boot = &joined.boot;
        assert_eq!((boot.rank, boot.size, boot.local_rank), (rank, 5, rank));
        assert_eq!(boot.ranks, Ranks::first(5));
        assert_eq!((boot.job, boot.stream_key), (first.job, first.stream_key));
        assert!(!boot.over_hosts && boot.leader.is_some());
    }
    let files = joined_jobs.iter().map(|joined| {
        let stat = rustix::fs::fstat(joined.segment.as_ref().unwrap()).unwrap();
        (stat.st_dev, stat.st_ino)
    });
    let files: std::collections::HashSet<_> = files.collect();
    assert_eq!(files.len(), 1);
}

/// The next message that a rank receives, after waiting for it.
fn received(managed: &mut Managed) -> ToRank {
    let since = std::time::Instant::now();
    while since.elapsed().as_secs() < 20 {
        if let ControlInput::Message(message) = managed.receive() {
            return message;
        }
        thread::yield_now();
    }
    panic!("nothing is heard");
}

#[test]
fn a_rank_that_exits_without_finalize_is_lost_for_its_neighbours() {
    let server = Server::new("lost", 4);
    let mut joined_jobs = server.joined_jobs();
    let leader = joined_jobs[0].boot.leader.unwrap();
    let guests: Vec<u32> = (0..4).filter(|rank| *rank != leader).collect();
    // One guest reports that it has finalized MPI, another guest does not.
    joined_jobs[guests[0] as usize].managed.finalized().unwrap();
    let place = |joined_jobs: &[JoinedJob], rank| {
        joined_jobs
            .iter()
            .position(|joined| joined.boot.rank == rank)
    };
    for rank in [guests[0], guests[1]] {
        let place = place(&joined_jobs, rank).unwrap();
        drop(joined_jobs.remove(place));
    }
    for rank in [leader, guests[2]] {
        let place = place(&joined_jobs, rank).unwrap();
        let expected = ToRank::Lost {
            rank: guests[1],
            why: "its process has ended without MPI_Finalize".to_owned(),
        };
        assert_eq!(received(&mut joined_jobs[place].managed), expected);
    }
    // The leader finalizes MPI, and then exits.
    let of_leader = place(&joined_jobs, leader).unwrap();
    joined_jobs[of_leader].managed.finalized().unwrap();
    drop(joined_jobs.remove(of_leader));
    assert!(matches!(
        joined_jobs[0].managed.receive(),
        ControlInput::Nothing
    ));
}

#[test]
fn a_leader_that_exits_without_finalize_is_lost() {
    let server = Server::new("leader", 3);
    let mut joined_jobs = server.joined_jobs();
    let leader = joined_jobs[0].boot.leader.unwrap();
    joined_jobs.retain(|joined| joined.boot.rank != leader);
    for joined in &mut joined_jobs {
        let message = received(&mut joined.managed);
        assert!(matches!(message, ToRank::Lost { rank, .. } if rank == leader));
    }
}

#[test]
fn ranks_of_other_nodes_are_found_by_their_records_on_the_server() {
    // Each rank is the only rank of its node.
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
                managed.exchange_records(&mut boot, &record).unwrap();
                // The mask of rank 1 has no CPU.
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
    assert_eq!(received(&mut places[0]), ToRank::Record { rank: 2, record });
    assert!(matches!(
        received(&mut places[0]),
        ToRank::NoRecord { rank: 0, .. }
    ));
    places[0].take(&ToDaemon::Quiet { rank: 0 });
    assert!(matches!(places[0].receive(), ControlInput::Nothing));
    for rank in [1, 2] {
        places[rank as usize].take(&ToDaemon::Quiet { rank });
    }
    for place in &mut places {
        assert_eq!(received(place), ToRank::AllQuiet);
    }
}

#[test]
fn an_invalid_rank_or_size_from_the_server_is_an_error() {
    check_place(2, 3).unwrap();
    for (rank, size) in [(3, 3), (0, 0), (0, u32::MAX), (u32::MAX - 1, u32::MAX)] {
        let error = check_place(rank, size).unwrap_err().to_string();
        assert!(
            error.contains(&format!("is rank {rank} of {size}, expected")),
            "{error}"
        );
    }
}

#[test]
fn job_keys_and_hex_bytes_are_parsed_from_their_text() {
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
