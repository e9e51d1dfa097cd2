// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process's part in the network of the job. Publishes the address record of the process to the daemon, requests
//! the records of other processes, and stores which peers are dead, and why.
//!
//! All of this happens in turns of the progress loop (`dispatch.rs`). Without a network, a turn only tests a flag.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use engine::{ContextId, Engine, EventType, Peer};
use transport::{
    Config, Fabric, GidPlaces, NetLimits, NetTerms, Node, Providers, Rendezvous, StreamKey,
    TcpCongestion, TcpTerms,
};
use wireup::{Boot, Record};

use crate::Error;
use crate::boot::{DaemonLink, LaunchState};
use crate::comm::{self, Group};
use crate::comms::Comms;
use crate::directory::{DaemonEvent, Directory};
use crate::pump::Pump;
use crate::var::{self, Variable, VariableValues};

/// The state of the job's network, and the connection to the daemon, which has the address records of other processes.
#[derive(Debug)]
pub struct JobNetwork {
    /// Rank of this process in `MPI_COMM_WORLD`.
    rank: u32,
    is_used: bool,
    /// The connection to the daemon, if there is a launcher.
    link: Option<DaemonLink>,
    directory: Directory,
    /// Dead peers, each with the reason.
    lost: Vec<(Peer, String)>,
    /// Whether the daemon has reported that all messages of all ranks have arrived. Then no peer needs acknowledgements
    /// of this process any more.
    may_leave: bool,
}

impl JobNetwork {
    pub(crate) fn new(rank: u32) -> Self {
        Self {
            rank,
            is_used: false,
            link: None,
            directory: Directory::default(),
            lost: Vec::new(),
            may_leave: false,
        }
    }

    /// The connection to the daemon, if there is a launcher.
    #[must_use]
    pub fn link(&self) -> Option<&DaemonLink> {
        self.link.as_ref()
    }

    /// Sets the connection to the launcher's daemon.
    pub(crate) fn set_link(&mut self, link: Option<DaemonLink>) {
        self.link = link;
    }

    /// Publishes the address record of this process, if the daemon expects one (`will_publish`).
    pub(crate) fn join(&mut self, pump: &mut Pump, will_publish: bool) {
        let record = pump.fabric.network_record();
        self.is_used = record.is_some();
        pump.takes_back = self.is_used;
        if will_publish {
            let record = Record::new(record.as_deref().unwrap_or_default());
            self.directory
                .publish(self.rank, record.unwrap_or_default());
        }
    }

    /// If the process uses a network: reports that everything that it has sent has arrived, and that it will send
    /// nothing more. Until it [may leave](Self::may_leave) it must keep sending acknowledgements, because its peers
    /// need them and acknowledgements may be lost.
    pub fn report_quiescence(&mut self) {
        if self.is_used {
            self.directory.report_quiescence(self.rank);
        }
    }

    /// Records that the daemon has reported that all messages of all ranks have arrived.
    pub(crate) fn allow_leave(&mut self) {
        self.may_leave = true;
    }

    /// Whether the process may exit as far as the network is concerned: it uses no network, or all messages of all
    /// ranks have arrived and been acknowledged.
    #[must_use]
    pub fn may_leave(&self) -> bool {
        self.may_leave || !self.is_used
    }

    /// Whether turns have to call [`has_work`](Self::has_work).
    #[inline(always)]
    pub(crate) fn needs_turns(&self) -> bool {
        self.is_used || !self.lost.is_empty()
    }

    /// Whether this turn has work here. Most turns have none.
    #[inline(always)]
    pub(crate) fn has_work(&self, pump: &Pump) -> bool {
        !self.lost.is_empty()
            || !self.directory.is_idle()
            || pump.engine.has_returned()
            || pump.fabric.has_network_notices()
    }

    /// Maximum time that the process may sleep now. It is short while a reply of the daemon is expected, because such a
    /// reply does not wake the process.
    pub(crate) fn sleep_limit(&mut self) -> Duration {
        if self.directory.is_idle() {
            return Duration::MAX;
        }
        self.directory.sleep_limit(Instant::now())
    }

    /// Reports the transport's events about the network: to the user, to tools and to the daemon.
    #[cold]
    pub(crate) fn report_network_events(&mut self, pump: &mut Pump) {
        let Pump { engine, fabric, .. } = pump;
        while let Some(text) = fabric.next_warning() {
            eprintln!("rmpi: rank {}: {text}", self.rank);
        }
        while let Some(text) = fabric.next_remark() {
            // Many ranks may make the same remark, and the launcher prints only the first remark of a job.
            match &self.link {
                Some(_) => self.directory.remark(self.rank, text),
                None => eprintln!("rmpi: rank {}: {text}", self.rank),
            }
        }
        while let Some(change) = fabric.next_port_change() {
            let event = match change.is_up {
                true => EventType::PortUp,
                false => EventType::PortDown,
            };
            let (rail, port) = (change.rail.into(), change.port.into());
            engine.note(event, [rail, port, change.serving.into(), 0, 0]);
        }
        while let Some(peer) = fabric.next_unresolved() {
            self.directory.request_record(self.rank, peer.0);
        }
    }

    /// Whether a message to the daemon is queued or a reply expected.
    pub(crate) fn has_traffic(&self) -> bool {
        !self.directory.is_idle()
    }

    /// Sends queued messages to the daemon. Returns its next message, if a reply is expected.
    pub(crate) fn next_reply(&mut self) -> Option<DaemonEvent> {
        self.directory.turn(self.link.as_ref()?)
    }

    /// The next message of the daemon, whether or not a reply is expected; or the end of the connection.
    pub(crate) fn next_event(&mut self) -> Option<DaemonEvent> {
        self.directory.receive(self.link.as_ref()?)
    }

    /// To be called if rank `lost` has ended without `MPI_Finalize`. Ends the job of another launcher, as a daemon of
    /// rmpi would: few other launchers do, and other ranks may wait for the lost rank for ever. Does nothing if a
    /// daemon of rmpi is connected.
    #[cold]
    pub fn end_job_without(&self, lost: u32, why: &str) {
        let Some(link) = self.link.as_ref().filter(|link| !link.has_daemon()) else {
            return;
        };
        crate::boot::flush_output();
        eprintln!(
            "rmpi: rank {}: rank {lost} is lost: {why}; the job ends",
            self.rank
        );
        // If the abort does not reach the server, only the exit of this process can end the job.
        let _ = link.abort(1);
        crate::boot::leave(1);
    }

    /// Records a peer as dead, or as unreachable from the start. `false`: it was recorded already.
    pub(crate) fn add_lost(&mut self, peer: Peer, why: &str) -> bool {
        let is_new = self.lost.iter().all(|(lost, _)| *lost != peer);
        if is_new {
            self.lost.push((peer, why.to_owned()));
        }
        is_new
    }

    /// Why a peer is dead; `None`: it is not recorded as dead.
    pub(crate) fn why_lost(&self, peer: Peer) -> Option<&str> {
        let found = self.lost.iter().find(|(lost, _)| *lost == peer);
        found.map(|(_, why)| why.as_str())
    }

    /// The error for a dead member of a group; `None`: no member is dead. The error has the member's rank in the group
    /// and the reason.
    pub(crate) fn lost_among(&self, group: &Group) -> Option<Error> {
        let found = |(peer, why): &(Peer, String)| {
            let rank = i32::try_from(group.rank_of(*peer)?).ok()?;
            let why = why.clone();
            Some(Error::Lost { rank, why })
        };
        self.lost.iter().find_map(found)
    }

    /// Ends the operations that need a dead peer, also those that were started after its death.
    pub(crate) fn end_lost(&self, engine: &mut Engine, comms: &Comms) {
        for (peer, _) in &self.lost {
            // A collective that the peer will never enter cannot complete on any rank.
            let in_vain = |context: ContextId, source: Option<Peer>| {
                let is_member = comms.has_member(comm::of_messages(context), *peer);
                is_member && (source.is_none() || comm::is_internal(context))
            };
            engine.lose(*peer, in_vain);
        }
    }
}

fn providers(values: &VariableValues) -> Providers {
    Providers {
        shm: values.has(Variable::Providers, "shm"),
        verbs: values.has(Variable::Providers, "verbs"),
        tcp: values.has(Variable::Providers, "tcp"),
        roce: values.has(Variable::Providers, "roce"),
        dpdk: values.has(Variable::Providers, "dpdk"),
    }
}

/// Whether some rank can be reached only over a network, and a network provider is enabled.
pub(crate) fn is_needed(boot: &Boot, values: &VariableValues) -> bool {
    let Providers {
        shm,
        verbs,
        tcp,
        roce,
        dpdk,
    } = providers(values);
    let by_shm = if shm { boot.local_size() } else { 1 };
    (verbs || tcp || roce || dpdk) && boot.size > by_shm
}

/// Opens the transports to all other ranks.
pub(crate) fn open(launch: &LaunchState, values: &VariableValues) -> Result<Fabric, Error> {
    let Some(boot) = &launch.boot else {
        return Ok(Fabric::open(Config::alone())?);
    };
    let providers = providers(values);
    let attach = |segment: &OwnedFd| {
        let ranks = boot.ranks.as_slice().iter();
        let peers = ranks.map(|rank| transport::Peer(*rank)).collect();
        Node::attach(segment.as_fd(), boot.job, boot.local_rank, peers)
    };
    let node = match &launch.segment {
        Some(segment) if boot.local_size() > 1 && providers.shm => Some(attach(segment)?),
        // The segment is attached only so that this process can publish whether it waits.
        Some(segment) => attach(segment).ok(),
        None => None,
    };
    let network = values
        .network()
        .of_local_rank(boot.local_rank)
        .of_job(boot.job)
        .over_hosts(boot.over_hosts)
        .with_key(network_key(boot, values)?);
    let network = match stream_key(boot, values)? {
        Some(key) => network.with_stream_key(key),
        None => network,
    };
    let config = Config {
        me: transport::Peer(boot.rank),
        peers: boot.size,
        node,
        providers,
        network,
    };
    let mut fabric = Fabric::open(config).map_err(|error| explained(error, boot, values))?;
    // Each turn uncorks the transport, see `progress.rs`.
    fabric.promise_uncork();
    Ok(fabric)
}

impl VariableValues {
    /// The network settings that are the same in all processes of the job.
    #[must_use]
    pub fn network(&self) -> transport::NetworkSettings {
        transport::NetworkSettings::default()
            .on_devices(self.text(Variable::NetDevices))
            .on_rails(u32::try_from(self.get(Variable::NetRails)).unwrap_or(1))
            .meeting_by(self.rendezvous())
            .within(self.net_limits())
            .over_tcp(self.tcp_terms())
            .over_dpdk(self.text(Variable::Dpdk))
    }

    /// The protocol of large messages over the network: which side transfers the data.
    fn rendezvous(&self) -> Rendezvous {
        match self.get(Variable::NetRendezvous) {
            1 => Rendezvous::Read,
            2 => Rendezvous::Write,
            _ => Rendezvous::Auto,
        }
    }

    /// Sizes and limits of the network's resources, and settings of queue pairs.
    fn net_limits(&self) -> NetLimits {
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

    fn tcp_terms(&self) -> TcpTerms {
        let mut ports = var::items(self.text(Variable::PortRange));
        TcpTerms {
            interfaces: self.text(Variable::NetInterfaces).to_owned(),
            ports: ports.next().and_then(wireup::port_range),
            connections: u32::try_from(self.get(Variable::NetPairs)).unwrap_or(1),
            over_hosts: false,
            congestion: match self.get(Variable::NetCongestion) {
                0 => TcpCongestion::Auto,
                1 => TcpCongestion::System,
                2 => TcpCongestion::Named("cubic"),
                3 => TcpCongestion::Named("reno"),
                4 => TcpCongestion::Named("dctcp"),
                _ => TcpCongestion::Named("bbr"),
            },
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
            rnr_retry: byte(Variable::NetNotReadyRetries),
            not_ready_us: number(Variable::NetNotReadyTime),
            service_level: byte(Variable::NetServiceLevel),
            traffic_class: byte(Variable::NetTrafficClass),
            hops: byte(Variable::NetHops),
            partition: u16::try_from(self.get(Variable::NetPartition)).unwrap_or(u16::MAX),
            gids: GidPlaces::of(places.filter_map(|place| place.parse().ok())),
        }
    }
}

fn network_key(boot: &Boot, values: &VariableValues) -> Result<u32, Error> {
    if !is_needed(boot, values) {
        return Ok(0);
    }
    boot.network_key.ok_or_else(without_key)
}

fn stream_key(boot: &Boot, values: &VariableValues) -> Result<Option<StreamKey>, Error> {
    if !is_needed(boot, values) || !providers(values).tcp {
        return Ok(None);
    }
    let wireup::JobStreamKey(key) = boot.stream_key.ok_or_else(without_key)?;
    Ok(Some(StreamKey::new(key)))
}

fn without_key() -> Error {
    let text = "the launcher has given no key for the network: use the rmpiexec that was installed with the library";
    Error::Boot(text.to_owned())
}

/// Adds to an error from opening the network which setting has caused it.
fn explained(error: transport::Error, boot: &Boot, values: &VariableValues) -> Error {
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
            if is_here(peer) { "shm" } else { "verbs or tcp" },
        )),
        transport::Error::NoNetwork { peer, why } => Error::Unreachable(format!(
            "rank {peer} {} cannot be reached: RMPI_PROVIDERS is \"{given}\", and {why}{}",
            place(peer),
            shm(peer)
        )),
        other => other.into(),
    }
}

const _: () = assert!(
    transport::MOST_RECORD_BYTES <= wireup::MAX_RECORD_BYTES,
    "a process with many ports and a long host name can be found"
);

#[cfg(test)]
mod tests;
