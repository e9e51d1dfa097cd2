// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connects the engine and the transport: makes work requests of the transport from the outputs of the engine, and
//! inputs of the engine from completions of the transport. The engine decides, and the pump moves the bytes.

use std::sync::Arc;

use channel::LiveChannelCounters;
use engine::{
    ArrivedFrame, ContextId, Engine, EventType, FrameBody, OutFrame, Output, Peer, ReceivedMessage,
    RequestId, wire,
};
use queue_layout::{EngineCounters, FLAG_SYNCHRONOUS};
use transport::{Arrived, Fabric, Head, Owner, RemoteKey, SLOT_BODY_BYTES, WorkId, WorkOutcome};

use crate::carrier::carrier;
use crate::limits::{SendLimits, engine_config};
use crate::operation::NO_BUFFER;
use crate::pack::Structured;
use crate::rendezvous_protocol::{RendezvousChoices, RendezvousProtocol};
use crate::request_data::{RequestData, RequestDataTable};
use crate::user_buf;
use crate::var::live::live;
use crate::var::traffic::PeerTraffic;
use crate::var::{Variable, VariableValues};

/// Owner of the frames and work requests of MPI messages.
pub(crate) const ENGINE: Owner = Owner::new(0);

const _: () = assert!(wire::KINDS_END <= Owner::KINDS, "the engine's kinds");

/// Why [`Pump::take_in_small`] has not taken in the next frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Small {
    /// The body of the next frame is longer than [`Pump::take_in_small`] takes in. The frame may be a message for the
    /// receive.
    Longer,
    /// There is no frame, or the next frame is not an eager message for the receive.
    Other,
}

/// The result of polling for one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PolledFrame {
    /// No frame has arrived.
    Nothing,
    /// The frame needs the general path, or a full poll is due.
    Other,
    /// A message for another receive. It was taken in.
    Taken,
    /// The message for the awaited receive. It was taken in, and the receive was collected.
    Awaited(ReceivedMessage),
}

/// Moves messages. Contains the engine, the transport, and the state between the two.
#[derive(Debug)]
pub(crate) struct Pump {
    pub(crate) engine: Engine,
    pub(crate) fabric: Fabric,
    pub(crate) sides: RequestDataTable,
    pub(crate) limits: SendLimits,
    pub(crate) ways: RendezvousChoices,
    /// Counters of the messages sent to each peer.
    pub(crate) traffic: Arc<PeerTraffic>,
    /// This process.
    pub(crate) me: Peer,
    /// Whether a network is in use. Peers may then read memory over it, so the remote keys of sends must be withdrawn
    /// when the sends complete.
    pub(crate) takes_back: bool,
}

impl Pump {
    /// Makes the pump of process `me` in a job of `size` ranks. `counters`: the counters of the engine, which other
    /// threads may read. `channels`: the counters of channels.
    pub(crate) fn new(
        fabric: Fabric,
        (me, size): (Peer, u32),
        values: &VariableValues,
        counters: Arc<EngineCounters>,
        channels: Arc<LiveChannelCounters>,
    ) -> Self {
        let most_bytes = fabric.max_send_bytes() as u64;
        let config = engine_config(values, most_bytes);
        let traffic = PeerTraffic::new(size, fabric.counters(), channels);
        Self {
            engine: Engine::with_counters(config, size, counters),
            fabric,
            sides: RequestDataTable::default(),
            limits: SendLimits::of(&config, most_bytes),
            ways: RendezvousChoices::new(
                values.get(Variable::SingleCopy),
                values.get(Variable::CopyTrials),
            ),
            traffic: Arc::new(traffic),
            me,
            takes_back: false,
        }
    }

    /// Makes room in the engine and in the counters for peers that were added to the transport.
    pub(crate) fn make_room_for_peers(&mut self) {
        let peers = self.fabric.peer_count();
        self.engine.add_peers(peers);
        self.traffic.grow_to(peers);
    }

    /// Applies settings that a tool has written while MPI runs.
    pub(crate) fn renew_settings(&mut self) {
        self.limits.renew(&mut self.engine);
        self.ways.follow(live(Variable::SingleCopy));
    }

    /// The fast path: takes in the next frame if it is a message of eight bytes for the receive of `token`, and
    /// collects that receive. `None`: nothing was done.
    #[inline(always)]
    pub(crate) fn take_in_awaited(&mut self, token: u32) -> Option<ReceivedMessage> {
        let frame = self.fabric.first_plain_frame(wire::EAGER, 8)?;
        let (peer, head) = (Peer(frame.peer().0), frame.head());
        let buffer = self.engine.arrive_for(token, peer, head.word, 8)?;
        user_buf::put_word(buffer, frame.word());
        frame.take();
        Some(ReceivedMessage::in_frame(peer, head.word, 8))
    }

    /// Takes in the next frame if it is a message of up to 48 bytes for the receive of `token`, and collects that
    /// receive.
    #[inline(always)]
    pub(crate) fn take_in_small(&mut self, token: u32) -> Result<ReceivedMessage, Small> {
        let frame = self.fabric.first_frame().ok_or(Small::Other)?;
        let (peer, head) = (Peer(frame.peer().0), frame.head());
        let is_plain = head.kind == wire::EAGER && head.flags == 0;
        if usize::from(head.len) > SLOT_BODY_BYTES {
            return Err(Small::Longer);
        }
        if !is_plain {
            return Err(Small::Other);
        }
        let bytes = u64::from(head.len);
        let buffer = self
            .engine
            .arrive_for(token, peer, head.word, bytes)
            .ok_or(Small::Other)?;
        frame.copy_inline(user_buf::of_matched(buffer, bytes).as_mut_slice());
        frame.take();
        Ok(ReceivedMessage::in_frame(peer, head.word, bytes))
    }

    /// Takes in the next frame if it is an eager message whose body is in a buffer of its sender, for the receive of
    /// `token`, and collects that receive. `None`: nothing was done.
    #[inline(always)]
    pub(crate) fn take_in_long(&mut self, token: u32) -> Option<ReceivedMessage> {
        let frame = self.fabric.first_frame()?;
        let (peer, head) = (Peer(frame.peer().0), frame.head());
        if head.kind != wire::EAGER || head.flags != 0 {
            return None;
        }
        let body = frame.body()?;
        let bytes = body.bytes();
        let buffer = self.engine.arrive_for(token, peer, head.word, bytes)?;
        frame.take_into(body, user_buf::of_matched(buffer, bytes).as_mut_slice());
        Some(ReceivedMessage::in_frame(peer, head.word, bytes))
    }

    /// Takes in the next frame if it is an eager message for the receive of `token`, or for the first posted receive of
    /// its queue. In the first case also collects the receive of `token`. Not to be called while requests have data in
    /// [`RequestDataTable`].
    #[inline(always)]
    pub(crate) fn take_in_first(&mut self, token: u32) -> PolledFrame {
        if self.fabric.must_poll() {
            return PolledFrame::Other;
        }
        let Some(frame) = self.fabric.first_frame() else {
            return PolledFrame::Nothing;
        };
        let (peer, head) = (Peer(frame.peer().0), frame.head());
        let Some(body) = frame.body() else {
            return PolledFrame::Other;
        };
        let bytes = body.bytes();
        if head.kind != wire::EAGER || head.flags != 0 {
            return PolledFrame::Other;
        }
        if let Some(buffer) = self.engine.arrive_for(token, peer, head.word, bytes) {
            frame.take_into(body, user_buf::of_matched(buffer, bytes).as_mut_slice());
            return PolledFrame::Awaited(ReceivedMessage::in_frame(peer, head.word, bytes));
        }
        let Some((buffer, fits)) = self.engine.arrive_first(peer, head.word, bytes) else {
            return PolledFrame::Other;
        };
        frame.take_into(body, user_buf::of_matched(buffer, fits).as_mut_slice());
        PolledFrame::Taken
    }

    /// Takes in a frame for the engine.
    #[inline(always)]
    pub(crate) fn take_in(&mut self, arrived: &Arrived) {
        let Head {
            kind, flags, word, ..
        } = arrived.head;
        let arrival = ArrivedFrame {
            peer: Peer(arrived.peer.0),
            head: wire::FrameHead { kind, flags, word },
            bytes: arrived.bytes(),
            words: arrived.words,
        };
        match self.engine.arrive(arrival) {
            None => {}
            Some(Output::Deliver {
                request,
                offset,
                bytes,
            }) => {
                self.deliver(arrived, request, offset, bytes);
            }
            Some(output) => self.carry_out_for(output, arrived),
        }
        if arrived.is_lent() {
            self.fabric.release(arrived);
        }
    }

    #[inline(always)]
    fn deliver(&mut self, arrived: &Arrived, request: RequestId, offset: u64, bytes: u64) {
        if self.sides.is_empty() || !self.deliver_structured(arrived, request, offset, bytes) {
            let fields = self.engine.arena().fields(request);
            let mut target = user_buf::of_request(fields, offset, bytes);
            self.fabric.copy_body(arrived, target.as_mut_slice());
        }
        if arrived.head.kind == wire::DATA && self.engine.is_complete(request) {
            self.note_transfer(request);
        }
    }

    /// Copies the bytes of a frame to the blocks of a receive of noncontiguous data. `false`: the request is not such a
    /// receive.
    #[inline(never)]
    fn deliver_structured(
        &mut self,
        arrived: &Arrived,
        request: RequestId,
        offset: u64,
        bytes: u64,
    ) -> bool {
        let token = self.engine.arena().token(request);
        let Some((data, window)) = self.sides.arriving(token, bytes) else {
            return false;
        };
        // The bytes are first copied out of the peer's memory, because the peer could change them while they are
        // unpacked.
        self.fabric.copy_body(arrived, window);
        data.unpack_at(offset, window);
        true
    }

    /// Records the end of a large message's transfer.
    fn note_transfer(&mut self, request: RequestId) {
        let token = self.engine.arena().token(request);
        if !self.sides.could_choose(token) {
            return;
        }
        let fields = self.engine.arena().fields(request);
        let bytes = fields.matched_bytes.min(fields.bytes);
        self.ways.end(Peer(fields.matched_peer), bytes);
    }

    #[inline(never)]
    fn carry_out_for(&mut self, output: Output, arrived: &Arrived) {
        if let Output::KeepMore { message, offset } = output {
            return self.keep_more(arrived, message, offset);
        }
        let Output::Keep { message } = output else {
            return self.carry_out(output);
        };
        let mut body = vec![0u8; usize::try_from(arrived.bytes()).unwrap_or(0)].into_boxed_slice();
        self.fabric.copy_body(arrived, &mut body);
        self.engine.keep(message, body);
    }

    fn keep_more(&mut self, arrived: &Arrived, message: RequestId, offset: u64) {
        let body = self.engine.kept_body_mut(message);
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = body.get_mut(offset..).unwrap_or_default();
        self.fabric.copy_body(arrived, rest);
        if let Some(next) = self.engine.kept_more(message) {
            self.carry_out(next);
        }
    }

    /// Carries out an output of a call that may return without a turn of progress. Therefore it also posts frames that
    /// wait, such as a reply to the sender.
    pub(crate) fn carry_out_at_once(&mut self, output: Output) {
        self.carry_out(output);
        if self.engine.busy_peers() != 0 {
            self.drain();
        }
    }

    /// Carries out an output that needs no arrived frame.
    #[inline(never)]
    pub(crate) fn carry_out(&mut self, output: Output) {
        match output {
            Output::DeliverKept {
                request,
                message,
                bytes,
            } => {
                self.deliver_kept(request, message, bytes);
                self.engine.drop_message(message);
            }
            Output::Pull {
                request,
                peer,
                key,
                bytes,
            } => self.pull(request, peer, key, bytes),
            // These outputs need the frame that has just arrived, and are handled by `take_in`.
            Output::Deliver { .. } | Output::Keep { .. } | Output::KeepMore { .. } => {}
        }
    }

    fn deliver_kept(&mut self, request: RequestId, message: RequestId, bytes: u64) {
        let fields = self.engine.arena().fields(request);
        let token = self.engine.arena().token(request);
        let body = self.engine.kept_body(message);
        let body = &body[..body.len().min(usize::try_from(bytes).unwrap_or(usize::MAX))];
        if let Some(data) = self.sides.received(token) {
            return data.unpack(body);
        }
        let mut target = user_buf::of_request(fields, 0, bytes);
        let target = target.as_mut_slice();
        let bytes = body.len().min(target.len());
        target[..bytes].copy_from_slice(&body[..bytes]);
    }

    fn pull(&mut self, request: RequestId, peer: Peer, key: [u64; 3], bytes: u64) {
        let token = self.engine.arena().token(request);
        // A read needs a key for the sender's memory, and a receive buffer without gaps; else the sender streams the
        // data.
        if key == wire::NO_KEY || self.engine.arena().fields(request).buffer == NO_BUFFER {
            self.sides.note_choice(token, false);
            self.count_streamed(bytes);
            if key != wire::NO_KEY {
                self.fabric
                    .decline(carrier(peer), RemoteKey::from_words(key));
            }
            return self.engine.cannot_pull(request);
        }
        self.sides.note_choice(token, true);
        let chooses = self.fabric.caps(carrier(peer)).may_stream;
        if chooses && self.ways.begin(peer, bytes) == RendezvousProtocol::Stream {
            self.count_streamed(bytes);
            return self.engine.cannot_pull(request);
        }
        let target = user_buf::of_request(self.engine.arena().fields(request), 0, bytes);
        let lease = user_buf::lease(target);
        let work = ENGINE.work(request.0.into());
        let key = RemoteKey::from_words(key);
        if bytes < key.bytes {
            // The receive buffer is shorter than the message, so the data that the sender has announced will not all be
            // read.
            self.fabric.decline(carrier(peer), key);
        }
        self.fabric.post_read(carrier(peer), lease, key, 0, work);
    }

    fn count_streamed(&self, bytes: u64) {
        let counters = self.engine.live_counters();
        counters.streamed.add(1);
        counters.streamed_bytes.add(bytes);
    }

    /// Takes in the completion of a read of the sender's memory.
    #[inline(never)]
    pub(crate) fn take_in_read(&mut self, work: WorkId, outcome: WorkOutcome) {
        let request = RequestId(u32::try_from(work.number()).unwrap_or(0));
        if outcome != WorkOutcome::Unreachable {
            self.note_transfer(request);
        }
        match outcome {
            WorkOutcome::Done => {
                let fields = self.engine.arena().fields(request);
                let bytes = fields.matched_bytes.min(fields.bytes);
                let counters = self.engine.live_counters();
                counters.pulled.add(1);
                counters.pulled_bytes.add(bytes);
                self.engine.pulled(request);
            }
            WorkOutcome::Unreachable => {
                let fields = self.engine.arena().fields(request);
                self.count_streamed(fields.matched_bytes.min(fields.bytes));
                self.note_refusal(request);
                self.engine.cannot_pull(request);
            }
            // `Unknown` does not occur here: the pump posts only reads for the engine, and the outcome of a read is
            // always known.
            WorkOutcome::BadKey | WorkOutcome::Unknown => self.engine.transfer_failed(request),
        }
    }

    #[cold]
    fn note_refusal(&mut self, request: RequestId) {
        let fields = self.engine.arena().fields(request);
        let words = [fields.matched_peer.into(), fields.matched_bytes, 0, 0, 0];
        self.engine.note(EventType::SingleCopyRefused, words);
    }

    /// Posts the frames that wait for `peer`, until none waits or the transport has no room.
    pub(crate) fn drain_outbox(&mut self, peer: Peer) {
        while let Some(frame) = self.engine.next_frame(peer) {
            if !self.post(peer, &frame) {
                break;
            }
            self.engine.posted(peer);
        }
        if self.takes_back {
            self.withdraw_keys();
        }
    }

    /// Posts the frames that wait for any peer.
    #[inline(never)]
    pub(crate) fn drain(&mut self) {
        for _ in 0..self.engine.busy_peers() {
            let Some(peer) = self.engine.next_busy() else {
                return;
            };
            self.drain_outbox(peer);
        }
    }

    fn post(&mut self, peer: Peer, frame: &OutFrame) -> bool {
        let peer = carrier(peer);
        let head = head(frame.head);
        match frame.body {
            FrameBody::Words { words, count } => {
                let mut bytes = [0u8; 48];
                for (to, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
                    *to = word.to_ne_bytes();
                }
                let body = &bytes[..usize::from(count) * 8];
                // The transport may send the data that an RTS announces in a later turn.
                if frame.head.kind == wire::RTS && self.fabric.has_network() {
                    let data = wire::key_of_rts(&words).map(RemoteKey::from_words);
                    let posted = self.fabric.post_announcement(peer, head, body, data);
                    return posted.is_ok();
                }
                self.fabric.post_send(peer, head, body).is_ok()
            }
            FrameBody::Payload {
                request,
                offset,
                bytes,
            } => {
                let fields = self.engine.arena().fields(request);
                if fields.buffer == NO_BUFFER && bytes > 0 {
                    return self.post_packed(peer, head, request, offset, bytes);
                }
                let memory = user_buf::of_request(fields, offset, bytes);
                self.fabric.post_send(peer, head, memory.as_slice()).is_ok()
            }
        }
    }

    /// Posts the data of a persistent send in one frame, if they are small and no frame waits. `false`: nothing was
    /// posted.
    pub(crate) fn post_whole(&mut self, request: RequestId) -> bool {
        let fields = self.engine.arena().fields(request);
        let (peer, bytes) = (Peer(fields.peer), fields.bytes);
        let goes_at_once = self.limits.is_eager(bytes)
            && fields.flags & FLAG_SYNCHRONOUS == 0
            && self.engine.is_clear(peer);
        if !goes_at_once {
            return false;
        }
        let head = head(wire::eager(ContextId(fields.context), fields.tag));
        let memory = user_buf::of_request(fields, 0, bytes);
        let posted = self
            .fabric
            .post_send(carrier(peer), head, memory.as_slice());
        posted.is_ok()
    }

    /// Packs and posts one frame of noncontiguous data. `false`: it was not posted.
    #[inline(never)]
    fn post_packed(
        &mut self,
        peer: transport::Peer,
        head: Head,
        request: RequestId,
        at: u64,
        bytes: u64,
    ) -> bool {
        let token = self.engine.arena().token(request);
        let fabric = &mut self.fabric;
        let post = |frame: &[u8]| fabric.post_send(peer, head, frame).is_ok();
        self.sides.post_frame((token, at, bytes), post)
    }

    /// Makes a remote key with which a peer can read memory. [`wire::NO_KEY`]: none was made. If a network is in use,
    /// an eager message gets no key, because registering its memory would cost more than sending it.
    pub(crate) fn export(&mut self, peer: Peer, buffer: u64, bytes: u64) -> [u64; 3] {
        if self.takes_back && self.limits.is_eager(bytes) {
            return wire::NO_KEY;
        }
        let key = self.fabric.offer(carrier(peer), buffer, bytes).to_words();
        if key == wire::NO_KEY && !self.limits.is_eager(bytes) {
            let words = [peer.0.into(), bytes, 0, 0, 0];
            self.engine.note(EventType::MemoryNotRegistered, words);
        }
        key
    }

    /// Records that a send was started with a remote key, if it must be withdrawn later.
    pub(crate) fn lend(&mut self, request: RequestId, key: [u64; 3]) {
        if self.takes_back && key != wire::NO_KEY {
            self.engine.lend(request);
        }
    }

    /// Withdraws the remote keys of completed sends. To be called before the application can see that these sends are
    /// complete, because the application may then unmap the memory.
    pub(crate) fn withdraw_keys(&mut self) {
        while let Some((peer, key)) = self.engine.take_back() {
            self.fabric
                .withdraw(carrier(peer), RemoteKey::from_words(key));
        }
    }

    /// Whether a large message with this remote key should be sent early: in several frames, without waiting for a CTS.
    pub(crate) fn goes_early(&mut self, peer: Peer, bytes: u64, key: [u64; 3]) -> bool {
        let key = RemoteKey::from_words(key);
        bytes <= self.engine.config().early_limit_bytes
            && self.fabric.had_better_stream(carrier(peer), key)
    }

    pub(crate) fn keep_structured(&mut self, request: RequestId, data: Structured) {
        let token = self.engine.arena().token(request);
        self.sides.insert(token, RequestData::Received { data });
    }

    /// Whether a send gets no remote key although an RTS may announce it: a synchronous send of at most the eager
    /// limit. Such a send is rarely announced, and its data are then streamed frame by frame.
    pub(crate) fn goes_whole(&self, bytes: u64, synchronous: bool) -> bool {
        synchronous && self.limits.is_eager(bytes)
    }

    /// Remote key of a persistent message that has waited for its [gate](crate::gates), and whether it is sent early.
    pub(crate) fn key_of(&mut self, request: RequestId) -> ([u64; 3], bool) {
        let fields = self.engine.arena().fields(request);
        let (peer, buffer, bytes) = (Peer(fields.peer), fields.buffer, fields.bytes);
        let key = self.export(peer, buffer, bytes);
        (key, self.goes_early(peer, bytes, key))
    }

    /// Counts an invalid frame of a peer.
    pub(crate) fn refuse(&mut self) {
        self.engine.live_counters().refused.add(1);
    }

    /// To be called when a request was collected: drops the data that are stored for it here. Those of a persistent
    /// request stay for its next start.
    pub(crate) fn drop_data(&mut self, request: RequestId) {
        let arena = self.engine.arena();
        if arena.fields(request).flags & queue_layout::FLAG_PERSISTENT == 0 {
            self.sides.remove(arena.token(request));
        }
        self.sides.forget_stale(arena);
    }
}

#[inline(always)]
pub(crate) fn head(head: wire::FrameHead) -> Head {
    Head {
        kind: head.kind,
        len: 0,
        flags: head.flags,
        word: head.word,
    }
}
