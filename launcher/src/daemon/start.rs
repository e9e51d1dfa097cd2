// SPDX-License-Identifier: MIT OR Apache-2.0
//! Start-up of the daemon and of its ranks.

use super::birth::{self, Ends, Nest};
use super::ending::Ending;
use super::far::{self, Found};
use super::hold::Hold;
use super::input::Input;
use super::look::Look;
use super::pmi_server::{self, PmiServer};
use super::probe::Probes;
use super::rank::Rank;
use super::records::Records;
use super::standstill::Standstill;
use super::streams::{Prompts, Streams};
use super::{Daemon, Interests, SCRATCH_BYTES, Token, control, interest};
use crate::cli::Reader;
use crate::edge::Edge;
use crate::failure::counted;
use crate::front;
use crate::job::{NodeJob, random_u64};
use crate::link::{Event, Order, Phase, Stream};
use crate::program::{NoProgram, cause};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollFlags};
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{Pid, dup2_stdin, dup2_stdout, pipe2};
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::time::Duration;
use wireup::{NodeMap, Ranks};

/// Descriptors of the daemon per rank, and those that it needs besides.
const DESCRIPTORS_PER_RANK: u64 = 4;
const DESCRIPTORS_BESIDES: u64 = 40;

/// Runs the node daemon in this process, which was forked for it: serves the job that the front sends over `front`.
pub(crate) fn serve(mut edge: Edge) -> u8 {
    match begin(&mut edge) {
        Ok(Some((job, equipment))) => {
            let mut daemon = Daemon::new(job, edge, equipment);
            daemon.start_ranks();
            daemon.run();
            0
        }
        // The front is gone or has given up before the job was complete.
        Ok(None) => 0,
        Err(NoProgram { words, code }) => {
            Event::Broken { words, code }.put(&mut edge.outbox);
            // Fits into the socket's buffer, so one write sends it.
            let _ = edge.flush();
            1
        }
    }
}

fn begin(edge: &mut Edge) -> Result<Option<(NodeJob, Equipment)>, NoProgram> {
    let broken = |words| NoProgram { words, code: 1 };
    detach()
        .map_err(said("leave the terminal"))
        .map_err(broken)?;
    let Some(mut job) = hear_job(edge).map_err(broken)? else {
        return Ok(None);
    };
    let found = match job.far {
        Some(far) => far::look(&mut job, far)?,
        None => Found::default(),
    };
    let mut equipment = Equipment::get(&job, edge).map_err(broken)?;
    equipment.left = found.left;
    // On the launcher's own machine there are no other daemons to wait for.
    job.begun.ready = front::now();
    if job.far.is_some() {
        Event::Ready.put(&mut edge.outbox);
        match hear_order(edge).map_err(broken)? {
            Some(Order::Start(begun)) => job.begun = begun,
            _ => return Ok(None),
        }
        let told = found.told.into_iter();
        told.for_each(|words| Event::Notice(words).put(&mut edge.outbox));
    }
    equipment.nest.ordered_at = front::now();
    Ok(Some((*job, equipment)))
}

/// Waits for the job and its programs.
fn hear_job(edge: &mut Edge) -> Result<Option<Box<NodeJob>>, String> {
    let mut told = Vec::new();
    loop {
        match hear_order(edge)? {
            Some(Order::Programs(programs)) => told = programs,
            Some(Order::Job(mut job)) => {
                let is_complete = job.complete(told);
                return is_complete.then_some(Some(job)).ok_or_else(other_release);
            }
            _ => return Ok(None),
        }
    }
}

fn other_release() -> String {
    "the front does not begin with a job: it is of another release than this daemon".to_owned()
}

/// Waits for the next order before ranks are started: programs, job, or start. `None`: the front is gone, or has
/// given up the job.
fn hear_order(edge: &mut Edge) -> Result<Option<Order>, String> {
    let mut scratch = vec![0; SCRATCH_BYTES];
    loop {
        match Order::take(&mut edge.inbox) {
            Ok(Some(order @ (Order::Programs(_) | Order::Job(_) | Order::Start(_)))) => {
                return Ok(Some(order));
            }
            Ok(Some(Order::Kill)) => return Ok(None),
            Ok(None) => {}
            Ok(Some(_)) | Err(_) => return Err(other_release()),
        }
        let Ok(is_flushed) = edge.flush() else {
            return Ok(None);
        };
        let mut asked = vec![PollFd::new(edge.reading(), PollFlags::POLLIN)];
        if !is_flushed {
            asked.push(PollFd::new(edge.writing(), PollFlags::POLLOUT));
        }
        match poll(&mut asked, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(said("wait for its job")(error)),
        }
        if edge.fill(&mut scratch).is_err() {
            return Ok(None);
        }
    }
}

/// Maps a system error to a message for the user.
fn said(what: &'static str) -> impl Fn(Errno) -> String {
    move |error| format!("cannot {what}: {}", error.desc().to_lowercase())
}

/// System resources that a daemon opens before the first rank.
struct Equipment {
    nest: Nest,
    poller: Epoll,
    signals: SignalFd,
    listener: UnixListener,
    complaints: OwnedFd,
    streams: Streams,
    left: Option<File>,
}

impl Equipment {
    fn get(job: &NodeJob, edge: &Edge) -> Result<Self, String> {
        let files = enough_descriptors(job.local_size(), job.input)?;
        let blocked = block_child_signal().map_err(said("watch its children"))?;
        let address = format!("rmpi-{}-{:08x}", std::process::id(), random_u64()? >> 32);
        let listener = control::listener(&address).map_err(said("listen to its ranks"))?;
        let (complaints, rank_side) = pipe2(OFlag::O_CLOEXEC).map_err(said("make a pipe"))?;
        fcntl(&complaints, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(said("set up a pipe"))?;
        let nest = Nest {
            daemon: Pid::this(),
            ranks: ranks_of(job)?,
            nodes: NodeMap::parse(&job.nodes, job.size),
            address,
            segment: Rc::new(node_segment::make(job.keys.job, job.local_size())?),
            complaints: rank_side,
            ordered_at: Duration::ZERO,
            signals: blocked,
            files,
        };
        let mut child = SigSet::empty();
        child.add(Signal::SIGCHLD);
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals = SignalFd::with_flags(&child, flags).map_err(said("watch its children"))?;
        let streams = Streams::new(prompts(job)).map_err(said("watch output"))?;
        let poller = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(said("make a poller"))?;
        let add = |descriptor: std::os::fd::BorrowedFd<'_>, token| {
            poller
                .add(descriptor, interest(EpollFlags::EPOLLIN, token))
                .map_err(said("fill a poller"))
        };
        add(edge.reading(), Token::Edge)?;
        add(signals.as_fd(), Token::Signals)?;
        add(listener.as_fd(), Token::Listener)?;
        add(streams.poller.0.as_fd(), Token::Streams)?;
        Ok(Self {
            nest,
            poller,
            signals,
            listener,
            complaints,
            streams,
            left: None,
        })
    }
}

impl Daemon {
    fn new(job: NodeJob, edge: Edge, equipment: Equipment) -> Self {
        let Equipment {
            nest,
            poller,
            signals,
            listener,
            complaints,
            streams,
            left,
        } = equipment;
        let ranks = Vec::with_capacity(job.ranks.len());
        let records = Records::new(job.ranks.iter().map(|placed| placed.rank), job.size);
        let hold = Hold::of(&job);
        let pmi = PmiServer::new(job.local_size(), job.size, nest.nodes.as_ref());
        Self {
            job,
            nest,
            edge,
            poller,
            signals,
            listener,
            complaints,
            ranks,
            by_pid: HashMap::new(),
            records,
            pmi,
            later_segments: HashMap::new(),
            visitors: HashMap::new(),
            visitor_count: 0,
            streams,
            interests: Interests {
                edge_writes: false,
                streams: true,
            },
            input: Input::default(),
            ending: Ending::new(),
            hold,
            tools: Vec::new(),
            look: Look::default(),
            has_remarked: false,
            probes: Probes::new(),
            standstill: Standstill::new(),
            tended_at: None,
            left,
            scratch: vec![0; SCRATCH_BYTES],
        }
    }

    /// Reports where it has found the programs, if the front could not inspect this host.
    fn tell_programs(&mut self) {
        let programs = self.job.far.map_or(0, |_| self.job.programs.len());
        for (app, number) in (0..programs).zip(0..) {
            let its = self.job.ranks.iter().filter(|placed| placed.app == number);
            let ranks: Vec<u32> = its.map(|placed| placed.rank).collect();
            if !ranks.is_empty() {
                let path = self.job.programs[app].path.clone();
                self.tell(&Event::Program { path, ranks });
            }
        }
    }

    fn start_ranks(&mut self) {
        self.tell_programs();
        let nothing = match File::open("/dev/null") {
            Ok(file) => OwnedFd::from(file),
            Err(error) => return self.broken(format!("cannot open /dev/null: {}", cause(&error))),
        };
        let mut all = 0..self.job.local_size();
        let problem = all.find_map(|local| Some((local, self.start_rank(local, &nothing).err()?)));
        let placed = self.job.ranks.iter();
        let started = placed
            .zip(&self.ranks)
            .map(|(placed, rank)| (placed.rank, rank.pid));
        let started = Event::Started(started.collect());
        self.tell(&started);
        match problem {
            Some((local, error)) => self.broken(self.too_few(local, error)),
            None => self.reached(Phase::Started),
        }
    }

    fn start_rank(&mut self, local: u32, nothing: &OwnedFd) -> Result<(), Errno> {
        let rank = self.job.ranks[local as usize].rank;
        let (output, output_end) = pipe2(OFlag::O_CLOEXEC)?;
        let (error, error_end) = pipe2(OFlag::O_CLOEXEC)?;
        let (control, control_end) = control::pair()?;
        let (pmi, pmi_end) = pmi_server::pair()?;
        let input_end = if self.job.input.reaches(rank) {
            Some(self.make_input(local)?)
        } else {
            None
        };
        let ends = Ends {
            input: input_end.as_ref().unwrap_or(nothing).as_fd(),
            output: output_end.as_fd(),
            error: error_end.as_fd(),
            control: control_end.as_fd(),
            pmi: pmi_end.as_fd(),
        };
        let pid = birth::start(&self.job, &self.nest, local, &ends)?;
        // From here on the rank exists, so it is recorded whatever else fails.
        let listen = interest(EpollFlags::EPOLLIN, Token::Control(local));
        let listening = self.poller.add(&control, listen);
        self.ranks.push(Rank::new(pid, control));
        self.by_pid.insert(pid, local);
        self.begin_pmi(local, pmi)?;
        self.streams.add(rank, Stream::Out, output)?;
        self.streams.add(rank, Stream::Err, error)?;
        listening
    }

    fn make_input(&mut self, local: u32) -> Result<OwnedFd, Errno> {
        let (rank_side, ours) = pipe2(OFlag::O_CLOEXEC)?;
        self.poller
            .add(&ours, interest(EpollFlags::empty(), Token::Input(local)))?;
        self.input.connect(local, ours)?;
        Ok(rank_side)
    }

    fn too_few(&self, started: u32, error: Errno) -> String {
        let wanted = self.job.local_size();
        let cause = error.desc().to_lowercase();
        let remedy = match error {
            Errno::EAGAIN => {
                "; look at ulimit -u and at the container's limit of processes, or start fewer ranks"
            }
            Errno::ENOMEM => "; start fewer ranks or give the machine more memory",
            Errno::EMFILE | Errno::ENFILE => {
                "; raise the limit of open files (ulimit -n) or start fewer ranks"
            }
            _ => "",
        };
        format!("could start only {started} of {wanted} ranks: {cause}{remedy}")
    }
}

/// Leaves the terminal's session, adopts orphans of the ranks, and sets the process name.
fn detach() -> Result<(), Errno> {
    nix::unistd::setsid()?;
    prctl::set_child_subreaper(true)?;
    prctl::set_name(c"rmpid")?;
    let nothing = File::options().read(true).write(true).open("/dev/null");
    if let Ok(nothing) = nothing {
        dup2_stdin(&nothing)?;
        dup2_stdout(&nothing)?;
    }
    Ok(())
}

/// Raises the limit of open files for the descriptors of all ranks; returns the previous limit, which ranks get.
fn enough_descriptors(ranks: u32, input: Reader) -> Result<(rlim_t, rlim_t), String> {
    let each = DESCRIPTORS_PER_RANK + u64::from(input == Reader::All);
    let needed = u64::from(ranks) * each + DESCRIPTORS_BESIDES;
    let limit = Resource::RLIMIT_NOFILE;
    let (soft, hard) = getrlimit(limit).map_err(|error| {
        format!(
            "cannot read the limit of open files: {}",
            error.desc().to_lowercase()
        )
    })?;
    if hard < needed {
        return Err(format!(
            "{} {needed} open files in the launcher, the limit is {hard}: raise it (ulimit -Hn) or start fewer ranks",
            counted(ranks, "rank needs", "ranks need")
        ));
    }
    if soft < needed {
        setrlimit(limit, needed, hard).map_err(|error| {
            format!(
                "cannot raise the limit of open files: {}",
                error.desc().to_lowercase()
            )
        })?;
    }
    Ok((soft, hard))
}

/// Blocks SIGCHLD, which is read from a signalfd; returns the previous mask.
fn block_child_signal() -> Result<SigSet, Errno> {
    let mut child = SigSet::empty();
    child.add(Signal::SIGCHLD);
    let mut before = SigSet::empty();
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&child), Some(&mut before))?;
    Ok(before)
}

fn ranks_of(job: &NodeJob) -> Result<Ranks, String> {
    let ranks = job.ranks.iter().map(|placed| placed.rank).collect();
    Ranks::new(ranks).ok_or_else(|| "the front placed a rank twice".to_owned())
}

fn prompts(job: &NodeJob) -> Prompts {
    match job {
        NodeJob { size: 1, .. } => Prompts::All,
        NodeJob { prompts: true, .. } => Prompts::RankZero,
        _ => Prompts::None,
    }
}
