// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a process does that reaches others over a network: it tells the daemon where it is found and asks where others are,
//! gives memory back that they could read, and ends what needs a peer that is lost.
//!
//! All of it happens in turns of the progress loop. Where there is no network, that costs one look at a flag.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use engine::{ContextId, Event, Peer};
use pmi::{Boot, Record};
use transport::{Config, Fabric, GidPlaces, NetLimits, NetTerms, Node, Providers, Rendezvous};

use crate::boot::Birth;
use crate::comm::{self, Group};
use crate::directory::{Directory, News};
use crate::pump::carrier;
use crate::var::{self, Values, Variable};
use crate::{Error, Universe};

/// What is known of the network.
#[derive(Debug, Default)]
pub(crate) struct Network {
    is_used: bool,
    directory: Directory,
    /// Peers that do not answer any more, and why.
    lost: Vec<(Peer, String)>,
    /// Nobody needs this process's answers any more.
    may_leave: bool,
}

impl Network {
    /// Whether there is something to do in each turn.
    #[inline(always)]
    pub(crate) fn wants_turns(&self) -> bool {
        self.is_used || !self.lost.is_empty()
    }

    /// Whether a turn has anything to do beside what the transport and the engine know.
    #[inline(always)]
    fn has_something(&self) -> bool {
        !self.lost.is_empty() || !self.directory.is_idle()
    }

    /// How long the process may sleep: nobody wakes it for what the daemon says.
    pub(crate) fn patience(&mut self) -> Duration {
        if self.directory.is_idle() {
            return Duration::MAX;
        }
        self.directory.patience(Instant::now())
    }

    /// Why a peer does not answer.
    pub(crate) fn why_lost(&self, peer: Peer) -> String {
        let found = self.lost.iter().find(|(lost, _)| *lost == peer);
        found.map_or_else(String::new, |(_, why)| why.clone())
    }
}

fn providers(values: &Values) -> Providers {
    Providers {
        shm: values.has(Variable::Providers, "shm"),
        verbs: values.has(Variable::Providers, "verbs"),
    }
}

/// Whether some rank can be reached over a network only.
pub(crate) fn is_needed(boot: &Boot, values: &Values) -> bool {
    let Providers { shm, verbs } = providers(values);
    let by_shm = if shm { boot.local_size() } else { 1 };
    verbs && boot.size > by_shm
}

/// Opens the way to all other ranks.
pub(crate) fn open(birth: &Birth, values: &Values) -> Result<Fabric, Error> {
    let Some(boot) = &birth.boot else {
        return Ok(Fabric::open(Config::alone())?);
    };
    let providers = providers(values);
    let attach = |segment: &OwnedFd| {
        let ranks = boot.ranks.as_slice().iter();
        let peers = ranks.map(|rank| transport::Peer(*rank)).collect();
        Node::attach(segment.as_fd(), boot.job, boot.local_rank, peers)
    };
    let node = match &birth.segment {
        Some(segment) if boot.local_size() > 1 && providers.shm => Some(attach(segment)?),
        // Only to say how it waits.
        Some(segment) => attach(segment).ok(),
        None => None,
    };
    let network = transport::Network {
        devices: values.text(Variable::NetDevices).to_owned(),
        rails: u32::try_from(values.get(Variable::NetRails)).unwrap_or(1),
        local_rank: boot.local_rank,
        rendezvous: values.rendezvous(),
        q_key: network_key(boot, values)?,
        limits: values.net_limits(),
    };
    let config = Config {
        me: transport::Peer(boot.rank),
        peers: boot.size,
        node,
        providers,
        network,
    };
    Fabric::open(config).map_err(|error| explained(error, boot, values))
}

impl Values {
    /// Who is to move large messages over the network.
    #[must_use]
    pub fn rendezvous(&self) -> Rendezvous {
        match self.get(Variable::NetRendezvous) {
            1 => Rendezvous::Read,
            2 => Rendezvous::Write,
            _ => Rendezvous::Auto,
        }
    }

    /// How much of everything the network takes, and what queue pairs are told.
    #[must_use]
    pub fn net_limits(&self) -> NetLimits {
        let number = |variable| u32::try_from(self.get(variable)).unwrap_or(u32::MAX);
        NetLimits {
            pairs: number(Variable::NetPairs),
            datagrams_first: number(Variable::NetDatagramsFirst),
            silence_ns: self.get(Variable::NetSilence) * 1_000_000_000,
            send_depth: number(Variable::NetSendDepth),
            receive_depth: number(Variable::NetReceiveDepth),
            datagram_depth: number(Variable::NetDatagramDepth),
            datagram_receives: number(Variable::NetDatagramReceives),
            inline_bytes: number(Variable::NetInline),
            signal_every: number(Variable::NetSignalEvery),
            striped_bytes: self.get(Variable::NetStripeLimit),
            copied_bytes: self.get(Variable::NetCopyLimit),
            part_bytes: self.get(Variable::NetPart),
            terms: self.net_terms(),
        }
    }

    fn net_terms(&self) -> NetTerms {
        let number = |variable| u32::try_from(self.get(variable)).unwrap_or(u32::MAX);
        let byte = |variable| u8::try_from(self.get(variable)).unwrap_or(u8::MAX);
        let places = var::items(self.text(Variable::NetGidIndex));
        NetTerms {
            packet_bytes: number(Variable::NetMtu),
            reads: byte(Variable::NetReads),
            answer_ms: number(Variable::NetTimeout),
            retries: byte(Variable::NetRetries),
            not_ready_retries: byte(Variable::NetNotReadyRetries),
            not_ready_us: number(Variable::NetNotReadyTime),
            service_level: byte(Variable::NetServiceLevel),
            traffic_class: byte(Variable::NetTrafficClass),
            hops: byte(Variable::NetHops),
            partition: u16::try_from(self.get(Variable::NetPartition)).unwrap_or(u16::MAX),
            gids: GidPlaces::of(places.filter_map(|place| place.parse().ok())),
        }
    }
}

fn network_key(boot: &Boot, values: &Values) -> Result<u32, Error> {
    if !is_needed(boot, values) {
        return Ok(0);
    }
    boot.network_key.ok_or_else(|| {
        let words = "the launcher has told no key for the network: use the rmpiexec that was installed with the library";
        Error::Boot(words.to_owned())
    })
}

/// An error in opening, with the setting that led to it.
fn explained(error: transport::Error, boot: &Boot, values: &Values) -> Error {
    let given = values.text(Variable::Providers);
    let is_here = |peer: u32| boot.ranks.has(peer);
    let place = |peer| match is_here(peer) {
        true => "of this node",
        false => "of another node",
    };
    let shm = |peer| match is_here(peer) && !values.has(Variable::Providers, "shm") {
        true => "; shm reaches it too, if RMPI_PROVIDERS has it",
        false => "",
    };
    match error {
        transport::Error::NoRoute { peer } => Error::Unreachable(format!(
            "rank {peer} {} cannot be reached: RMPI_PROVIDERS is \"{given}\"; add {}",
            place(peer),
            if is_here(peer) { "shm" } else { "verbs" },
        )),
        transport::Error::NoNetwork { peer, why } => Error::Unreachable(format!(
            "rank {peer} {} cannot be reached: RMPI_PROVIDERS is \"{given}\", and {why}{}",
            place(peer),
            shm(peer)
        )),
        other => other.into(),
    }
}

impl Universe {
    /// Tells the others where this process is found, if they were promised to be told.
    pub(crate) fn join_network(&mut self, is_promised: bool) {
        let record = self.messages.pump.fabric.network_record();
        self.network.is_used = record.is_some();
        self.messages.pump.takes_back = record.is_some();
        if is_promised {
            let record = Record::new(record.as_deref().unwrap_or_default());
            let rank = self.rank();
            self.network
                .directory
                .publish(rank, record.unwrap_or_default());
            self.listen();
        }
    }

    /// What this process has sent has arrived, and it sends nothing more. Until it [may leave](Self::may_leave) it must go on
    /// answering: that others' messages are here is known to them only from its answers, which may be lost.
    pub fn say_quiet(&mut self) {
        if self.network.is_used {
            let rank = self.rank();
            self.network.directory.say_quiet(rank);
        }
    }

    /// Whether everybody's messages have arrived, and everybody knows.
    #[must_use]
    pub fn may_leave(&self) -> bool {
        self.network.may_leave || !self.network.is_used
    }

    /// A turn for the network, if there is one: most of them have nothing to do.
    #[inline(always)]
    pub(crate) fn tend_network(&mut self) {
        let has_something = self.network.has_something()
            || self.messages.pump.engine.has_returned()
            || self.messages.pump.fabric.has_network_news();
        if has_something {
            self.tend_network_now();
        }
    }

    #[inline(never)]
    fn tend_network_now(&mut self) {
        self.end_lost();
        self.messages.pump.withdraw_keys();
        if self.messages.pump.fabric.has_network_news() {
            self.tell_network_news();
        }
        if !self.network.directory.is_idle() {
            self.listen();
        }
    }

    #[cold]
    fn tell_network_news(&mut self) {
        let rank = self.rank();
        while let Some(words) = self.messages.pump.fabric.next_complaint() {
            eprintln!("rmpi: rank {rank}: {words}");
        }
        while let Some(change) = self.messages.pump.fabric.next_port_change() {
            let event = match change.is_up {
                true => Event::PortUp,
                false => Event::PortDown,
            };
            let (rail, port) = (change.rail.into(), change.port.into());
            self.messages
                .pump
                .engine
                .note(event, [rail, port, change.serving.into(), 0, 0]);
        }
        while let Some(peer) = self.messages.pump.fabric.wanted_address() {
            self.network.directory.ask(rank, peer.0);
        }
    }

    /// Says to the daemon what is to be said, and takes what it says if an answer is expected.
    #[cold]
    fn listen(&mut self) {
        while let Some(link) = &self.link
            && let Some(news) = self.network.directory.turn(link)
        {
            self.take_news(news);
        }
    }

    /// Takes what the daemon says, expected or not: also that it is gone.
    pub(crate) fn hear_daemon(&mut self) {
        while let Some(link) = &self.link
            && let Some(news) = self.network.directory.hear(link)
        {
            self.take_news(news);
        }
    }

    fn take_news(&mut self, news: News) {
        match news {
            News::Record(rank, record) => {
                self.messages
                    .pump
                    .fabric
                    .learn_address(transport::Peer(rank), record.bytes());
            }
            News::NoRecord(rank, why) => self.lose(Peer(rank), why),
            News::Lost(rank, why) => {
                // What it sent before is here.
                self.progress();
                self.lose(Peer(rank), why);
            }
            News::AllQuiet => self.network.may_leave = true,
            News::End => {
                // Without the daemon nobody would end this process.
                eprintln!("rank {}: the launcher is gone; this rank ends", self.rank());
                crate::boot::leave(1);
            }
        }
    }

    /// A rank of this group that is lost: its number there, and why.
    pub(crate) fn lost_among(&self, group: &Group) -> Option<Error> {
        let found = |(peer, why): &(Peer, String)| {
            let rank = i32::try_from(group.rank_of(*peer)?).ok()?;
            let why = why.clone();
            Some(Error::Lost { rank, why })
        };
        self.network.lost.iter().find_map(found)
    }

    /// Why a peer is lost, if it is.
    pub(crate) fn why_lost(&self, peer: u32) -> Option<&str> {
        let mut all = self.network.lost.iter();
        let found = all.find(|(lost, _)| lost.0 == peer);
        found.map(|(_, why)| why.as_str())
    }

    /// A peer does not answer any more, or never did.
    #[cold]
    pub(crate) fn lose(&mut self, peer: Peer, why: String) {
        if self.network.lost.iter().all(|(lost, _)| *lost != peer) {
            self.messages.pump.fabric.lose(carrier(peer), &why);
            self.network.lost.push((peer, why));
            self.channels.lose(carrier(peer));
            let words = [peer.0.into(), 0, 0, 0, 0];
            self.messages.pump.engine.note(Event::PeerLost, words);
            self.messages.gates.lose(&mut self.messages.pump, peer);
            self.messages.pump.sides.forget_packed();
        }
        self.end_lost();
    }

    /// Ends what needs a lost peer, and what has been started with one since.
    fn end_lost(&mut self) {
        for (peer, _) in &self.network.lost {
            let comms = &self.comms;
            // A collective that the peer will never enter ends for nobody.
            let in_vain = |context: ContextId, source: Option<Peer>| {
                let is_member = comms.has_member(comm::of_messages(context), *peer);
                is_member && (source.is_none() || comm::is_internal(context))
            };
            self.messages.pump.engine.lose(*peer, in_vain);
        }
    }
}

const _: () = assert!(
    transport::MOST_RECORD_BYTES <= pmi::MAX_RECORD_BYTES,
    "a process with many ports and a long host name can be found"
);

#[cfg(test)]
mod tests;
