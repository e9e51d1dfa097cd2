// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts the daemon and its ranks.

use super::exec::{self, RankDescriptors, SpawnContext};
use super::hold::Hold;
use super::input::RankInput;
use super::pmi_server::{self, PmiServer};
use super::probe::Probes;
use super::rank::LocalRank;
use super::records::Records;
use super::remote_setup::{self, RemoteSetupResult};
use super::standstill::Standstill;
use super::streams::{OutputStreams, Prompts};
use super::termination::Termination;
use super::wait_query::WaitQuery;
use super::{Daemon, Interests, SCRATCH_BYTES, Token, control, interest};
use crate::cli::StdinTarget;
use crate::connection::FrameConnection;
use crate::failure::counted;
use crate::front;
use crate::job::{NodeJob, random_u64};
use crate::link::{NodeEvent, NodePhase, Order, OutputStream};
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

/// Number of the daemon's descriptors per rank, and number of its other descriptors. With `--stdin all` each rank needs
/// one more.
const DESCRIPTORS_PER_RANK: u64 = 4;
const DESCRIPTORS_BESIDES: u64 = 40;

/// Runs the node daemon in this process, which was forked for it: serves the job that the front sends over `front`.
pub(crate) fn serve(mut front: FrameConnection) -> u8 {
    match begin(&mut front) {
        Ok(Some((job, resources))) => {
            let mut daemon = Daemon::new(job, front, resources);
            daemon.start_ranks();
            daemon.run();
            0
        }
        // The front is gone or has given up before the job was complete.
        Ok(None) => 0,
        Err(NoProgram { message, code }) => {
            NodeEvent::Broken { message, code }.put(&mut front.outbox);
            // The message fits in the socket's buffer, so one write sends it.
            let _ = front.flush();
            1
        }
    }
}

fn begin(front: &mut FrameConnection) -> Result<Option<(NodeJob, DaemonResources)>, NoProgram> {
    let broken = |message| NoProgram { message, code: 1 };
    detach()
        .map_err(describe("leave the terminal"))
        .map_err(broken)?;
    let Some(mut job) = receive_job(front).map_err(broken)? else {
        return Ok(None);
    };
    let found = match job.far {
        Some(far) => remote_setup::set_up(&mut job, far)?,
        None => RemoteSetupResult::default(),
    };
    let mut resources = DaemonResources::get(&job, front).map_err(broken)?;
    resources.left = found.stats_file;
    // In a job on this machine only, the front waits for no other daemon, so this is the time at which all daemons are
    // ready. Otherwise `Order::Start` replaces it.
    job.begun.ready = front::now();
    if job.far.is_some() {
        NodeEvent::Ready.put(&mut front.outbox);
        match receive_order(front).map_err(broken)? {
            Some(Order::Start(begun)) => job.begun = begun,
            _ => return Ok(None),
        }
        let received = found.notices.into_iter();
        received.for_each(|message| NodeEvent::Notice(message).put(&mut front.outbox));
    }
    resources.spawn_context.ordered_at = front::now();
    Ok(Some((*job, resources)))
}

/// Waits for the job and its programs.
fn receive_job(front: &mut FrameConnection) -> Result<Option<Box<NodeJob>>, String> {
    let mut received = Vec::new();
    loop {
        match receive_order(front)? {
            Some(Order::Programs(programs)) => received = programs,
            Some(Order::Job(mut job)) => {
                let is_complete = job.complete(received);
                return is_complete.then_some(Some(job)).ok_or_else(other_release);
            }
            _ => return Ok(None),
        }
    }
}

fn other_release() -> String {
    "the front does not begin with a job: it is of another release than this daemon".to_owned()
}

/// Waits for the next order before ranks are started: programs, job, or start. Returns `None` if the front is gone or
/// has given up the job.
fn receive_order(front: &mut FrameConnection) -> Result<Option<Order>, String> {
    let mut scratch = vec![0; SCRATCH_BYTES];
    loop {
        match Order::take(&mut front.inbox) {
            Ok(Some(order @ (Order::Programs(_) | Order::Job(_) | Order::Start(_)))) => {
                return Ok(Some(order));
            }
            Ok(Some(Order::Kill)) => return Ok(None),
            Ok(None) => {}
            Ok(Some(_)) | Err(_) => return Err(other_release()),
        }
        let Ok(is_flushed) = front.flush() else {
            return Ok(None);
        };
        let mut fds = vec![PollFd::new(front.reading(), PollFlags::POLLIN)];
        if !is_flushed {
            fds.push(PollFd::new(front.writing(), PollFlags::POLLOUT));
        }
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(describe("wait for its job")(error)),
        }
        if front.fill(&mut scratch).is_err() {
            return Ok(None);
        }
    }
}

/// Maps a system error to a message for the user.
fn describe(what: &'static str) -> impl Fn(Errno) -> String {
    move |error| format!("cannot {what}: {}", error.desc().to_lowercase())
}

/// System resources that a daemon opens before the first rank.
struct DaemonResources {
    spawn_context: SpawnContext,
    poller: Epoll,
    signals: SignalFd,
    listener: UnixListener,
    failure_pipe: OwnedFd,
    streams: OutputStreams,
    left: Option<File>,
}

impl DaemonResources {
    fn get(job: &NodeJob, front: &FrameConnection) -> Result<Self, String> {
        let files = enough_descriptors(job.local_size(), job.input)?;
        let blocked = block_child_signal().map_err(describe("watch its children"))?;
        let address = format!("rmpi-{}-{:08x}", std::process::id(), random_u64()? >> 32);
        let listener = control::listener(&address).map_err(describe("listen to its ranks"))?;
        let (failure_pipe, rank_side) = pipe2(OFlag::O_CLOEXEC).map_err(describe("make a pipe"))?;
        fcntl(&failure_pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))
            .map_err(describe("set up a pipe"))?;
        let spawn_context = SpawnContext {
            daemon: Pid::this(),
            ranks: ranks_of(job)?,
            nodes: NodeMap::parse(&job.nodes, job.size),
            address,
            segment: Rc::new(node_segment::make(job.keys.job, job.local_size())?),
            failure_pipe: rank_side,
            ordered_at: Duration::ZERO,
            signals: blocked,
            files,
        };
        let mut child = SigSet::empty();
        child.add(Signal::SIGCHLD);
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals =
            SignalFd::with_flags(&child, flags).map_err(describe("watch its children"))?;
        let streams = OutputStreams::new(prompts(job)).map_err(describe("watch output"))?;
        let poller =
            Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(describe("make a poller"))?;
        let add = |descriptor: std::os::fd::BorrowedFd<'_>, token| {
            poller
                .add(descriptor, interest(EpollFlags::EPOLLIN, token))
                .map_err(describe("fill a poller"))
        };
        add(front.reading(), Token::Front)?;
        add(signals.as_fd(), Token::Signals)?;
        add(listener.as_fd(), Token::Listener)?;
        add(streams.poller.0.as_fd(), Token::Streams)?;
        Ok(Self {
            spawn_context,
            poller,
            signals,
            listener,
            failure_pipe,
            streams,
            left: None,
        })
    }
}

impl Daemon {
    fn new(job: NodeJob, front: FrameConnection, resources: DaemonResources) -> Self {
        let DaemonResources {
            spawn_context,
            poller,
            signals,
            listener,
            failure_pipe,
            streams,
            left,
        } = resources;
        let ranks = Vec::with_capacity(job.ranks.len());
        let records = Records::new(job.ranks.iter().map(|placed| placed.rank), job.size);
        let hold = Hold::of(&job);
        let pmi = PmiServer::new(job.local_size(), job.size, spawn_context.nodes.as_ref());
        Self {
            job,
            spawn_context,
            front,
            poller,
            signals,
            listener,
            failure_pipe,
            ranks,
            by_pid: HashMap::new(),
            records,
            pmi,
            later_segments: HashMap::new(),
            pending_streams: HashMap::new(),
            pending_count: 0,
            streams,
            interests: Interests {
                front_writes: false,
                streams: true,
            },
            input: RankInput::default(),
            termination: Termination::new(),
            hold,
            tools: Vec::new(),
            wait_query: WaitQuery::default(),
            has_remarked: false,
            probes: Probes::new(),
            standstill: Standstill::new(),
            affinity_checked_at: None,
            left,
            scratch: vec![0; SCRATCH_BYTES],
        }
    }

    /// Reports where the daemon has found the programs, if the front could not inspect this host.
    fn report_programs(&mut self) {
        let programs = self.job.far.map_or(0, |_| self.job.programs.len());
        for (app, number) in (0..programs).zip(0..) {
            let its = self.job.ranks.iter().filter(|placed| placed.app == number);
            let ranks: Vec<u32> = its.map(|placed| placed.rank).collect();
            if !ranks.is_empty() {
                let path = self.job.programs[app].path.clone();
                self.send_event(&NodeEvent::Program { path, ranks });
            }
        }
    }

    fn start_ranks(&mut self) {
        self.report_programs();
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
        let started = NodeEvent::Started(started.collect());
        self.send_event(&started);
        match problem {
            Some((local, error)) => self.broken(self.too_few(local, error)),
            None => self.reached(NodePhase::Started),
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
        let descriptors = RankDescriptors {
            input: input_end.as_ref().unwrap_or(nothing).as_fd(),
            output: output_end.as_fd(),
            error: error_end.as_fd(),
            control: control_end.as_fd(),
            pmi: pmi_end.as_fd(),
        };
        let pid = exec::start(&self.job, &self.spawn_context, local, &descriptors)?;
        // From here on the rank exists, so it is recorded even if a later call fails.
        let listen = interest(EpollFlags::EPOLLIN, Token::Control(local));
        let listening = self.poller.add(&control, listen);
        self.ranks.push(LocalRank::new(pid, control));
        self.by_pid.insert(pid, local);
        self.open_pmi(local, pmi)?;
        self.streams.add(rank, OutputStream::Out, output)?;
        self.streams.add(rank, OutputStream::Err, error)?;
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

/// Leaves the terminal's session, makes this process adopt orphans of the ranks, sets the process name, and replaces
/// standard input and output by `/dev/null`.
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

/// Raises the limit of open files to what the descriptors of all ranks need. Returns the previous limit (soft, hard),
/// which the ranks get.
fn enough_descriptors(ranks: u32, input: StdinTarget) -> Result<(rlim_t, rlim_t), String> {
    let each = DESCRIPTORS_PER_RANK + u64::from(input == StdinTarget::All);
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
