// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of clients against recorded replies of servers.

use super::*;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};

/// Requests to a server, and its replies.
type Talk = &'static [(&'static str, &'static str)];

const HYDRA_5: Talk = &[
    (
        "cmd=init pmi_version=1 pmi_subversion=1\n",
        "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=2\n",
    ),
    (
        "cmd=get_maxes\n",
        "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024\n",
    ),
    ("cmd=get_appnum\n", "cmd=appnum rc=0 appnum=1\n"),
    (
        "cmd=get_my_kvsname\n",
        "cmd=my_kvsname rc=0 kvsname=kvs_4702_0_vm\n",
    ),
    (
        "cmd=put kvsname=kvs_4702_0_vm key=k2 value=1.here\n",
        "cmd=put_result rc=0\n",
    ),
    ("cmd=barrier_in\n", "cmd=barrier_out tag=0\n"),
    (
        "cmd=get kvsname=kvs_4702_0_vm key=k1\n",
        "cmd=get_result rc=0 value=1.there\n",
    ),
    (
        "cmd=get kvsname=kvs_4702_0_vm key=none\n",
        "cmd=get_result rc=1\n",
    ),
    ("cmd=finalize\n", "cmd=finalize_ack rc=0\n"),
];

const HYDRA_4: Talk = &[
    (
        "cmd=init pmi_version=1 pmi_subversion=1\n",
        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n",
    ),
    (
        "cmd=get_maxes\n",
        "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n",
    ),
    ("cmd=get_appnum\n", "cmd=appnum appnum=1\n"),
    ("cmd=get_my_kvsname\n", "cmd=my_kvsname kvsname=kvs_1\n"),
    (
        "cmd=put kvsname=kvs_1 key=k2 value=1.here\n",
        "cmd=put_result rc=0 msg=success\n",
    ),
    ("cmd=barrier_in\n", "cmd=barrier_out\n"),
    (
        "cmd=get kvsname=kvs_1 key=k1\n",
        "cmd=get_result rc=0 msg=success value=1.there\n",
    ),
    (
        "cmd=get kvsname=kvs_1 key=none\n",
        "cmd=get_result rc=-1 msg=key_none_not_found value=unknown\n",
    ),
    ("cmd=finalize\n", "cmd=finalize_ack\n"),
];

const SLURM: Talk = &[
    (
        "cmd=init pmi_version=2 pmi_subversion=0\n",
        "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n",
    ),
    (
        "55    cmd=fullinit;pmijobid=unknown;pmirank=2;threaded=FALSE;",
        "113   cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=2;size=3;appnum=1;debugged=FALSE;pmiverbose=FALSE;",
    ),
    (
        "14    cmd=job-getid;",
        "38    cmd=job-getid-response;rc=0;jobid=5.0;",
    ),
    (
        "32    cmd=kvs-put;key=k2;value=1.here;",
        "26    cmd=kvs-put-response;rc=0;",
    ),
    ("14    cmd=kvs-fence;", "    28cmd=kvs-fence-response;rc=0;"),
    (
        "41    cmd=kvs-get;jobid=5.0;srcid=-1;key=fence;",
        "38    cmd=kvs-get-response;rc=0;found=FALSE;",
    ),
    (
        "38    cmd=kvs-get;jobid=5.0;srcid=-1;key=k1;",
        "51    cmd=kvs-get-response;rc=0;found=TRUE;value=1.there;",
    ),
    (
        "40    cmd=kvs-get;jobid=5.0;srcid=-1;key=none;",
        "38    cmd=kvs-get-response;rc=0;found=FALSE;",
    ),
    ("13    cmd=finalize;", "27    cmd=finalize-response;rc=0;"),
];

/// A server that sends these replies byte by byte.
fn server(talk: Talk) -> (OwnedFd, JoinHandle<()>) {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let server = thread::spawn(move || {
        for (request, answer) in talk {
            let mut received = vec![0; request.len()];
            theirs.read_exact(&mut received).unwrap();
            assert_eq!(String::from_utf8_lossy(&received), *request);
            answer
                .bytes()
                .for_each(|byte| theirs.write_all(&[byte]).unwrap());
        }
    });
    (ours.into(), server)
}

fn fence(client: &mut Client) -> Result<(), Error> {
    client.begin_fence()?;
    while !client.is_fence_over()? {
        client.rest(PollFlags::IN)?;
    }
    Ok(())
}

#[test]
fn client_works_with_hydra_4_hydra_5_and_slurm() {
    for (talk, version) in [
        (HYDRA_5, Version::One),
        (HYDRA_4, Version::One),
        (SLURM, Version::Two),
    ] {
        let (stream, server) = server(talk);
        let mut client = Client::begin(stream, version, 2, 3).unwrap();
        assert_eq!((client.rank(), client.size(), client.app()), (2, 3, 1));
        client.put("k2", "here").unwrap();
        assert_eq!(client.is_fence_over(), Ok(true));
        fence(&mut client).unwrap();
        assert_eq!(client.get("k1"), Ok(Some("there".to_owned())));
        assert_eq!(client.get("none"), Ok(None));
        client.finalize().unwrap();
        server.join().unwrap();
    }
}

/// A server of PMI-1 that stores values and truncates them at `most` bytes.
fn store(most: usize) -> OwnedFd {
    let (ours, theirs) = UnixStream::pair().unwrap();
    thread::spawn(move || {
        let mut kept = std::collections::HashMap::new();
        let mut client = Client::over(
            theirs.into(),
            Version::One,
            RankAndSize { rank: 0, size: 1 },
        );
        while let Ok(line) = client.next_line() {
            assert!(line.len() < 1024, "{line}");
            let message = PmiMessage::of_line(&line);
            let key = message.get("key").unwrap_or_default().to_owned();
            let answer = match message.command() {
                "init" => PmiMessage::new("response_to_init"),
                "get_maxes" => PmiMessage::new("maxes").with("vallen_max", most),
                "get_appnum" => PmiMessage::new("appnum").with("appnum", -1),
                "get_my_kvsname" => PmiMessage::new("my_kvsname").with("kvsname", "x".repeat(200)),
                "put" => {
                    let value = message.get("value").unwrap();
                    kept.insert(key, value[..value.len().min(most - 1)].to_owned());
                    PmiMessage::new("put_result")
                }
                "get" => match kept.get(&key) {
                    Some(value) => PmiMessage::new("get_result").with("value", value),
                    None => PmiMessage::new("get_result").with("rc", 1),
                },
                other => panic!("{other}"),
            };
            client.send(&answer).unwrap();
        }
    });
    ours.into()
}

#[test]
fn long_values_are_split_below_the_server_limit() {
    for most in [1024, 100] {
        let stream = store(most);
        let mut client = Client::begin(stream, Version::One, 0, 1).unwrap();
        assert_eq!(client.app(), 0);
        let long: String = ('a'..='z').cycle().take(3000).collect();
        client.put("long", &long).unwrap();
        assert_eq!(client.get("long"), Ok(Some(long)));
        client.put("empty", "").unwrap();
        assert_eq!(client.get("empty"), Ok(Some(String::new())));
    }
}

#[test]
fn characters_that_pmi_cannot_carry_are_refused() {
    let stream = store(1024);
    let mut client = Client::begin(stream, Version::One, 0, 1).unwrap();
    for (text, character) in [
        ("a b", ' '),
        ("a;b", ';'),
        ("a=b", '='),
        ("a\nb", '\n'),
        ("ä", 'ä'),
    ] {
        assert_eq!(client.put("k", text), Err(Error::Character(character)));
    }
}

#[test]
fn pmi_port_server_assigns_the_rank() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().to_string();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let talk: Talk = &[(
            "cmd=initack pmiid=1\n",
            "cmd=initack rc=0\ncmd=set size=3\ncmd=set rank=2\ncmd=set debug=0\n",
        )];
        for (request, answer) in talk.iter().chain(&HYDRA_4[..4]) {
            let mut received = vec![0; request.len()];
            stream.read_exact(&mut received).unwrap();
            assert_eq!(String::from_utf8_lossy(&received), *request);
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    let client = Client::connect(&port, 1).unwrap();
    assert_eq!((client.rank(), client.size()), (2, 3));
    server.join().unwrap();
}

#[test]
fn invalid_server_replies_are_errors() {
    for (answer, message) in [
        ("", "the launcher has closed its connection to this process"),
        (
            "cmd=response_to_init rc=-1\n",
            "the launcher answered \"cmd=response_to_init rc=-1\" to \"init\"",
        ),
        (
            "cmd=response_to_init rc=0 pmi_version=1\n",
            "the launcher answered \"cmd=response_to_init rc=0 pmi_version=1\" to \"init\"",
        ),
        (
            "cmd=response_to_init rc=0 pmi_version=2\nHTTP/1.1 400\n",
            "the launcher sent what is no message of PMI-2: \"HTTP/1.1 400\n\"",
        ),
    ] {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(answer.as_bytes()).unwrap();
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        let error = Client::begin(ours.into(), Version::Two, 0, 2).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
}
