// SPDX-License-Identifier: MIT OR Apache-2.0
//! Release of the remote keys of sends, and the outcome of operations whose peer is lost.
#![allow(clippy::unwrap_used, reason = "test code may panic")]

use engine::{
    ArrivedFrame, Config, ContextId, Engine, FrameBody, Output, Peer, Receive, RequestFailure,
    RequestId, RequestState, Send, wire,
};

const CONTEXT: ContextId = ContextId(4);
const PEER: Peer = Peer(1);
const OTHER: Peer = Peer(2);
const KEY: [u64; 3] = [7, 8, 9];

fn engine() -> Engine {
    let config = Config {
        eager_limit_bytes: 100,
        early_limit_bytes: 1000,
        stream_chunk_bytes: 300,
        ..Config::default()
    };
    Engine::new(config, 3)
}

fn large() -> Send {
    Send {
        peer: PEER,
        context: CONTEXT,
        tag: 5,
        bytes: 500,
        buffer: 0,
        synchronous: false,
        early: false,
        key: KEY,
    }
}

fn receive(peer: Option<Peer>) -> Receive {
    Receive {
        context: CONTEXT,
        peer,
        tag: Some(5),
        bytes: 500,
        buffer: 0,
    }
}

/// Posts all frames that wait for the peer; returns their kinds.
fn post_all(engine: &mut Engine) -> Vec<u8> {
    std::iter::from_fn(|| {
        let frame = engine.next_frame(PEER)?;
        engine.posted(PEER);
        Some(frame.head.kind)
    })
    .collect()
}

fn arrive(engine: &mut Engine, kind: u8, word: u64, words: &[u64]) -> Option<Output> {
    let mut body = [0; 6];
    body[..words.len()].copy_from_slice(words);
    let head = wire::FrameHead {
        kind,
        flags: 0,
        word,
    };
    engine.arrive(ArrivedFrame {
        peer: PEER,
        head,
        bytes: words.len() as u64 * 8,
        words: body,
    })
}

fn answer(engine: &mut Engine, kind: u8, send: RequestId, words: &[u64]) {
    let word = u64::from(engine.arena().token(send));
    assert_eq!(arrive(engine, kind, word, words), None);
}

/// Checks that the key of the send is released, and no other key.
fn assert_returned(engine: &mut Engine) {
    assert_eq!(engine.take_back(), Some((PEER, KEY)));
    assert_eq!(engine.take_back(), None);
}

fn start_lent(engine: &mut Engine) -> RequestId {
    let request = engine.start_send(large()).unwrap();
    engine.lend(request);
    request
}

fn failure(engine: &Engine, request: RequestId) -> Option<u8> {
    let fields = engine.arena().fields(request);
    (fields.state == RequestState::Complete).then_some(fields.error)
}

const LOST: Option<u8> = Some(RequestFailure::Lost as u8);

#[test]
fn a_key_is_returned_when_the_data_was_read() {
    let mut engine = engine();
    let request = start_lent(&mut engine);
    assert_eq!(post_all(&mut engine), [wire::RTS]);
    assert_eq!(engine.take_back(), None);
    answer(&mut engine, wire::FIN, request, &[]);
    assert!(engine.is_complete(request));
    assert_returned(&mut engine);
    engine.collect(request);
    assert_eq!(engine.take_back(), None);
}

#[test]
fn a_key_is_returned_when_the_data_was_streamed() {
    let mut engine = engine();
    let request = start_lent(&mut engine);
    post_all(&mut engine);
    answer(&mut engine, wire::CTS, request, &[500]);
    assert_eq!(post_all(&mut engine), [wire::DATA, wire::DATA]);
    assert!(engine.is_complete(request));
    assert_returned(&mut engine);
}

#[test]
fn a_key_is_returned_when_the_send_is_cancelled() {
    let mut engine = engine();
    let request = start_lent(&mut engine);
    engine.cancel(request);
    assert_eq!(post_all(&mut engine), [0_u8; 0]);
    assert_returned(&mut engine);
    let request = start_lent(&mut engine);
    post_all(&mut engine);
    engine.cancel(request);
    assert_eq!(post_all(&mut engine), [wire::CANCEL]);
    let head = wire::FrameHead {
        kind: wire::CANCELLED,
        flags: wire::WAS_CANCELLED,
        word: u64::from(engine.arena().token(request)),
    };
    let (peer, bytes, words) = (PEER, 0, [0; 6]);
    engine.arrive(ArrivedFrame {
        peer,
        head,
        bytes,
        words,
    });
    assert_returned(&mut engine);
}

#[test]
fn a_key_is_returned_by_a_freed_request() {
    let mut engine = engine();
    let request = start_lent(&mut engine);
    post_all(&mut engine);
    engine.free(request);
    answer(&mut engine, wire::FIN, request, &[]);
    assert_returned(&mut engine);
    assert_eq!(engine.arena().live(), 0);
}

#[test]
fn a_persistent_send_lends_its_data_at_each_start() {
    let mut engine = engine();
    let request = engine.prepare_send(large()).unwrap();
    for _ in 0..2 {
        engine.restart_send(request, KEY, false);
        engine.lend(request);
        post_all(&mut engine);
        answer(&mut engine, wire::FIN, request, &[]);
        assert_returned(&mut engine);
        engine.collect(request);
    }
    engine.restart_send(request, KEY, false);
    post_all(&mut engine);
    answer(&mut engine, wire::FIN, request, &[]);
    assert_eq!(engine.take_back(), None, "it was not lent this time");
}

#[test]
fn operations_with_a_lost_peer_fail_and_those_with_others_do_not() {
    let mut engine = engine();
    let announced = start_lent(&mut engine);
    post_all(&mut engine);
    let queued = start_lent(&mut engine);
    let named = engine.start_receive(receive(Some(PEER)), false).unwrap().0;
    let any = engine.start_receive(receive(None), false).unwrap().0;
    let elsewhere = Send {
        peer: OTHER,
        ..large()
    };
    let elsewhere = engine.start_send(elsewhere).unwrap();
    let from_other = receive(Some(OTHER));
    let from_other = engine.start_receive(from_other, false).unwrap().0;
    engine.lose(PEER, |_, _| false);
    for request in [announced, queued, named] {
        assert_eq!(failure(&engine, request), LOST);
    }
    assert_eq!(engine.live_counters().lost.get(), 3);
    assert_eq!(engine.arena().fields(named).matched_peer, PEER.0);
    for request in [any, elsewhere, from_other] {
        assert_eq!(failure(&engine, request), None);
    }
    assert_eq!(engine.take_back(), Some((PEER, KEY)));
    assert_returned(&mut engine);
    engine.lose(PEER, |context, source| {
        context == CONTEXT && source.is_none()
    });
    assert_eq!(failure(&engine, any), LOST);
    assert_eq!(engine.busy_peers(), 1, "the other one's");
}

#[test]
fn operations_started_with_a_lost_peer_fail_at_the_next_check() {
    let mut engine = engine();
    engine.lose(PEER, |_, _| false);
    assert!(!engine.is_clear(PEER) && !engine.is_all_clear());
    let request = engine.start_send(large()).unwrap();
    assert_eq!(engine.next_frame(PEER), None);
    assert_eq!(engine.busy_peers(), 0);
    let received = engine.start_receive(receive(Some(PEER)), false).unwrap().0;
    engine.lose(PEER, |_, _| false);
    assert_eq!(failure(&engine, request), LOST);
    assert_eq!(failure(&engine, received), LOST);
    assert!(!engine.is_clear(PEER));
    assert!(engine.is_clear(OTHER));
}

#[test]
fn an_unsent_cancelled_send_to_a_lost_peer_succeeds() {
    let mut engine = engine();
    let request = engine.start_send(large()).unwrap();
    engine.cancel(request);
    engine.lose(PEER, |_, _| false);
    assert_eq!(failure(&engine, request), Some(0));
    assert_eq!(engine.live_counters().lost.get(), 0);
}

/// The word in the head of an RTS or FIRST frame.
fn envelope() -> u64 {
    wire::eager(CONTEXT, 5).word
}

#[test]
fn losing_a_peer_fails_streams_at_once_and_reads_at_their_end() {
    let mut engine = engine();
    let mut matched = || {
        let request = engine.start_receive(receive(Some(PEER)), false).unwrap().0;
        let output = arrive(&mut engine, wire::RTS, envelope(), &[1, 500, 7, 8, 9]);
        assert!(matches!(output, Some(Output::Pull { .. })));
        request
    };
    let (read, streamed) = (matched(), matched());
    engine.cannot_pull(streamed);
    engine.lose(PEER, |_, _| false);
    assert_eq!(failure(&engine, streamed), LOST);
    assert_eq!(failure(&engine, read), None);
    engine.cannot_pull(read);
    engine.lose(PEER, |_, _| false);
    assert_eq!(failure(&engine, read), LOST);
}

#[test]
fn losing_a_peer_fails_a_partly_received_message() {
    let mut engine = engine();
    let request = engine.start_receive(receive(Some(PEER)), false).unwrap().0;
    arrive(&mut engine, wire::FIRST, envelope(), &[400]);
    engine.lose(PEER, |_, _| false);
    assert_eq!(failure(&engine, request), LOST);
}

#[test]
fn losing_a_peer_drops_a_matched_partial_message() {
    let mut engine = engine();
    arrive(&mut engine, wire::FIRST, envelope(), &[400]);
    assert!(engine.counters().kept_bytes >= 400);
    let (request, output) = engine.start_receive(receive(Some(PEER)), false).unwrap();
    assert_eq!(output, None);
    engine.lose(PEER, |_, _| false);
    assert_eq!(failure(&engine, request), LOST);
    assert_eq!(engine.counters().kept_bytes, 0);
    engine.collect(request);
    assert_eq!(engine.arena().live(), 0);
}

#[test]
fn losing_a_peer_fails_later_receives_of_a_partial_message() {
    for claimed in [false, true] {
        let mut engine = engine();
        arrive(&mut engine, wire::FIRST, envelope(), &[400]);
        let found = engine.probe(CONTEXT, Some(PEER), None).unwrap();
        if claimed {
            engine.claim(found);
        }
        engine.lose(PEER, |_, _| false);
        assert_eq!(engine.counters().kept_bytes, 0);
        let (request, output) = if claimed {
            engine.start_matched_receive(found.message, 500, 0).unwrap()
        } else {
            engine.start_receive(receive(Some(PEER)), false).unwrap()
        };
        let Some(Output::Pull { key, .. }) = output else {
            panic!("the data are not here: {output:?}");
        };
        assert_eq!(key, wire::NO_KEY);
        engine.cannot_pull(request);
        engine.lose(PEER, |_, _| false);
        assert_eq!(failure(&engine, request), LOST);
    }
}

#[test]
fn a_whole_message_of_a_lost_peer_is_still_received() {
    let mut engine = engine();
    let output = arrive(&mut engine, wire::EAGER, envelope(), &[1]);
    let Some(Output::Keep { message }) = output else {
        panic!("it was not expected: {output:?}");
    };
    engine.keep(message, Box::new([1; 8]));
    engine.lose(PEER, |_, _| false);
    let (_, output) = engine.start_receive(receive(Some(PEER)), false).unwrap();
    assert!(matches!(output, Some(Output::DeliverKept { bytes: 8, .. })));
}

#[test]
fn losing_a_nonexistent_peer_changes_nothing() {
    let mut engine = engine();
    let request = engine.start_send(large()).unwrap();
    engine.lose(Peer(3), |_, _| true);
    assert_eq!(failure(&engine, request), None);
    let frame = engine.next_frame(PEER).unwrap();
    assert!(matches!(frame.body, FrameBody::Words { .. }));
}
