// SPDX-License-Identifier: MIT OR Apache-2.0
//! The front, the process that the user has started. It writes output, reads input, decides and reports the
//! consequences of failures and signals, and determines the exit code.

mod debugger;
mod files;
mod gdb;
mod input;
mod loss;
pub(crate) mod node_exchange;
mod nodes;
mod output;
mod phases;
mod query_server;
mod signals;
pub(crate) mod startup;

pub(crate) use debugger::Debugger;
#[cfg(test)]
pub(crate) use debugger::Processes;
pub(crate) use files::Files;
pub(crate) use gdb::{Gdb, RemoteTarget};
use loss::clear_up;
pub(crate) use loss::{describe_exit, wait_or_clear_up};
pub(crate) use nodes::{JobNode, NodeMessage, Nodes};
pub(crate) use phases::{PhaseTimes, now};
pub(crate) use query_server::QueryServer;
pub(crate) use signals::Signals;

use crate::cli::{JobRequest, StdinTarget};
use crate::connection::Disconnected;
use crate::escalation::{Escalation, EscalationStep};
use crate::failure::{FailureCause, RankFailure, counted};
use crate::link::{NodeEvent, NodeSummary, Order};
use crate::prepare;
use crate::program::cause;
use crate::spawn;
use crate::stats::{self, Stats};
use crate::strided_ranks::StridedRanks;
use debugger::DebuggerRequest;
use input::StdinReader;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::signalfd::SignalFd;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use output::{BrokenOutput, OutputWriter};
use signals::ENDING;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Error text for a standard descriptor that was closed when this process started.
pub(crate) const CLOSED: &str = "it is closed (name /dev/null if nobody wants it)";

/// Exit code after `--timeout`, as of the `timeout` command.
const TIMEOUT_CODE: u8 = 124;
/// Time limit for the end of a daemon or shepherd, and then for killing all processes that it has left behind.
const GIVE_UP_AFTER: Duration = Duration::from_secs(10);

/// Two equal signals within this time count as one, because the `timeout` command sends its signal to the process and
/// to the process group.
const SAME_REQUEST: Duration = Duration::from_millis(200);

/// If the user has ended the job by a second signal: maximum time for which pending output is still written once all
/// ranks have ended.
const LAST_OUTPUT_WITHIN: Duration = Duration::from_secs(1);

/// Optional features of a job.
pub(crate) struct JobFeatures {
    /// The files of `--output`.
    pub(crate) files: Option<Files>,
    /// The times for `--report`.
    pub(crate) phases: Option<PhaseTimes>,
    /// The statistics for `--stats`.
    pub(crate) stats: Option<Stats>,
    /// Server for queries about what the ranks of all hosts wait for.
    pub(crate) query_server: Option<QueryServer>,
}

pub(crate) struct Front {
    nodes: Nodes,
    signals: SignalFd,
    output: OutputWriter,
    input: StdinReader,
    /// Length of `--timeout` (`limit`), and its end (`timeout`). The time does not run while ranks are held.
    limit: Option<Duration>,
    timeout: Option<Instant>,
    debugger: Debugger,
    escalation: Option<Escalation>,
    code: Option<u8>,
    /// Whether no process of the job is left.
    is_over: bool,
    /// `-q`: whether messages about failures after `MPI_Finalize` are suppressed.
    quiet: bool,
    /// Whether the pids of the ranks are printed.
    verbose: bool,
    stdin: StdinTarget,
    /// Whether the job continues when a rank fails.
    keep_going: bool,
    /// If the job has continued after failures: the number of failed ranks, and the message about the first.
    failed: Option<(u32, String)>,
    /// Times of the job's phases, if the user requested a report.
    phases: Option<PhaseTimes>,
    /// Records of the ranks, if the user requested statistics.
    stats: Option<Stats>,
    /// Server for queries about what the ranks of all hosts wait for.
    query_server: Option<QueryServer>,
    /// Whether a remark of a rank about its network was printed.
    has_remarked: bool,
    /// Set after a second signal. Once all ranks are gone, pending output is written until this time.
    output_until: Option<Instant>,
    /// The last signal that requested the end of the job, and when it was received.
    last_signal: Option<(Signal, Instant)>,
    scratch: Vec<u8>,
}

impl Front {
    /// The front of a job whose daemons or shepherd have been started.
    pub(crate) fn new(
        request: &JobRequest,
        signals: Signals,
        nodes: Nodes,
        features: JobFeatures,
        debugger: Debugger,
    ) -> Result<Self, Errno> {
        let mut front = Self {
            input: StdinReader::new(nodes.has_readers()),
            nodes,
            signals: signals.descriptor()?,
            output: OutputWriter::new(request.tag_output, features.files)?,
            limit: request.timeout,
            timeout: None,
            debugger,
            escalation: None,
            code: None,
            is_over: false,
            output_until: None,
            last_signal: None,
            quiet: request.quiet,
            verbose: request.verbose,
            stdin: request.stdin,
            keep_going: request.keep_going,
            failed: None,
            phases: features.phases,
            stats: features.stats,
            query_server: features.query_server,
            has_remarked: false,
            scratch: vec![0; 64 << 10],
        };
        if let Some(stats) = &mut front.stats {
            stats.set_hosts(stats::RankHosts::of(front.nodes.hosts()));
        }
        if front.debugger.is_holding() {
            front.output.begin();
        } else {
            front.start_clock();
        }
        Ok(front)
    }

    fn start_clock(&mut self) {
        self.timeout = self.limit.map(|limit| Instant::now() + limit);
    }

    /// Prints a message on standard error.
    pub(crate) fn print(&mut self, message: &str) {
        self.output.print(message);
    }

    /// Runs the event loop until the job and its gdb are over, and all output was written or the time for writing it
    /// has expired.
    fn attend(&mut self) {
        let lasts = |front: &Self| !front.is_over || front.debugger.gdb_end().is_some();
        while lasts(self) || !(self.output.is_idle() || self.is_late()) {
            if let Err(link) = self.turn() {
                self.handle_lost_link(link);
            }
        }
    }

    /// Runs the job to its end; returns its exit code.
    pub(crate) fn run(mut self) -> u8 {
        self.attend();
        self.check_output();
        // Messages about the last output must be written as well.
        self.attend();
        for link in 0..self.nodes.links() {
            match self.nodes.process_of(link) {
                // The shepherd may still wait for hosts. It ends soon after its connection is closed.
                (shepherd, true) => {
                    self.nodes.hang_up();
                    wait_or_clear_up(shepherd);
                }
                (daemon, false) => drop(waitpid(Pid::from_raw(daemon.cast_signed()), None)),
            }
        }
        self.code.unwrap_or(0)
    }

    fn is_late(&self) -> bool {
        self.output_until
            .is_some_and(|until| until <= Instant::now())
    }

    /// Runs one iteration of the event loop, with a bounded amount of work.
    ///
    /// # Errors
    /// The number of a link whose other side has closed the connection.
    fn turn(&mut self) -> Result<(), usize> {
        let now = Instant::now();
        self.on_time(now);
        self.check_query_server(now);
        self.nodes.flush()?;
        for source in self.wait(now) {
            match source {
                FrontReadiness::Signals => self.handle_signals(),
                FrontReadiness::Output => self.check_output(),
                FrontReadiness::Input => self.read_input(),
                FrontReadiness::Connection(link) => {
                    let read = self.nodes.fill(link, &mut self.scratch);
                    read.map_err(|Disconnected| link)?;
                    self.receive_events(link);
                }
                FrontReadiness::Debugger => match self.debugger.take_request() {
                    Some(DebuggerRequest::Release) => self.release(),
                    Some(DebuggerRequest::Tool(message)) => {
                        self.order(&Order::Tool(message));
                        self.nodes.flush()?;
                        // The debugger sets its breakpoint after its request, and reads the table at the breakpoint.
                        self.debugger.spawned();
                    }
                    None => (),
                },
                FrontReadiness::Query(event) => self.serve_query(event),
                FrontReadiness::Gdb => {
                    if !self.debugger.gdb_over() {
                        self.print("gdb has ended before it came to its ranks; all ranks go on");
                        self.release();
                    }
                }
            }
        }
        Ok(())
    }

    fn read_input(&mut self) {
        let order = self.input.read(&mut self.scratch);
        order.into_iter().for_each(|order| self.order(&order));
        let Some(error) = self.input.take_error() else {
            return;
        };
        let reason = match error {
            Errno::EBADF => "it is not open for reading".to_owned(),
            error => cause(&error.into()),
        };
        let readers = match self.stdin {
            StdinTarget::Rank(rank) => format!("rank {rank} sees"),
            _ => "the ranks see".to_owned(),
        };
        self.print(&format!(
            "cannot read standard input: {reason}; {readers} its end"
        ));
    }

    /// Waits for events. Descriptors that need not be handled now are left out, since poll would report their closed
    /// ends again and again.
    fn wait(&mut self, now: Instant) -> Vec<FrontReadiness> {
        let wants_input = !self.is_over && self.input.is_wanted(now);
        let timeout = self.next_time().map_or(PollTimeout::NONE, |at| {
            let left = at.saturating_duration_since(now);
            PollTimeout::try_from(left.as_millis() + 1).unwrap_or(PollTimeout::MAX)
        });
        let stdin = std::io::stdin();
        let fifo_fd = |source, descriptor| (source, PollFd::new(descriptor, PollFlags::POLLIN));
        let mut all = vec![
            fifo_fd(FrontReadiness::Signals, self.signals.as_fd()),
            fifo_fd(FrontReadiness::Output, self.output.wake()),
        ];
        if wants_input {
            all.push(fifo_fd(FrontReadiness::Input, stdin.as_fd()));
        }
        let connections = self.nodes.connections();
        all.extend(
            connections.map(|(link, last_signal)| (FrontReadiness::Connection(link), last_signal)),
        );
        if !self.is_over {
            all.push(fifo_fd(FrontReadiness::Debugger, self.debugger.fifo_fd()));
        }
        all.extend(
            self.debugger
                .gdb_end()
                .map(|end| fifo_fd(FrontReadiness::Gdb, end)),
        );
        let query_server = self.query_server.iter().flat_map(QueryServer::poll_fds);
        all.extend(
            query_server.map(|(event, last_signal)| (FrontReadiness::Query(event), last_signal)),
        );
        let (sources, mut polled): (Vec<FrontReadiness>, Vec<PollFd<'_>>) = all.into_iter().unzip();
        let _ = poll(&mut polled, timeout);
        let is_ready = |fd: &PollFd<'_>| fd.revents().is_some_and(|flags| !flags.is_empty());
        let both = sources.into_iter().zip(&polled);
        both.filter_map(|(source, fd)| is_ready(fd).then_some(source))
            .collect()
    }

    fn next_time(&self) -> Option<Instant> {
        let escalation = self.escalation.as_ref().and_then(Escalation::next);
        let output = self.output_until.filter(|_| self.is_over);
        let query_time = self.query_server.as_ref().and_then(QueryServer::next_time);
        [
            self.timeout,
            escalation,
            output,
            self.input.next_check(),
            query_time,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn on_time(&mut self, now: Instant) {
        if self.timeout.take_if(|at| *at <= now).is_some() {
            let seconds = self.limit.unwrap_or_default().as_secs_f64();
            self.end(
                Escalation::failure,
                TIMEOUT_CODE,
                &format!("the time of {seconds} s is over, the job is ended"),
            );
        }
        while let Some(step) = self
            .escalation
            .as_mut()
            .and_then(|escalation| escalation.due(now))
        {
            self.order(&match step {
                EscalationStep::Signal(signal) => Order::Signal(signal as i32),
                EscalationStep::Kill => Order::Kill,
            });
        }
    }

    fn order(&mut self, order: &Order) {
        self.nodes.order(order);
    }

    /// Reports the reason and starts the escalation. Does nothing if an escalation has started or the job is over,
    /// since the first reason counts.
    fn end(&mut self, escalation: impl FnOnce(Instant) -> Escalation, code: u8, message: &str) {
        if self.escalation.is_some() || self.is_over {
            return;
        }
        self.print(message);
        self.code.get_or_insert(code);
        self.debugger.aborting(message);
        // The time is taken only now, because a debugger may have stopped this process for long.
        self.escalation = Some(escalation(Instant::now()));
    }

    fn handle_signals(&mut self) {
        while let Ok(Some(is_ready)) = self.signals.read_signal() {
            let number = i32::try_from(is_ready.ssi_signo).unwrap_or(0);
            let Ok(signal) = Signal::try_from(number) else {
                continue;
            };
            if ENDING.contains(&signal) {
                // A debugger that traces this process stops it at the signal, as for Ctrl-C in any program, and may
                // discard the signal.
                if !spawn::is_traced() || spawn::show_to_tracer(signal) {
                    self.handle_end_signal(signal);
                }
                continue;
            }
            self.order(&Order::Signal(number));
            if signal == Signal::SIGTSTP {
                let _ = self.nodes.flush();
                // This process stops here, and continues with SIGCONT, which is forwarded in the same way as SIGTSTP.
                let _ = kill(Pid::this(), Signal::SIGSTOP);
            }
        }
    }

    fn handle_end_signal(&mut self, signal: Signal) {
        let now = Instant::now();
        let again = |(last, at): (Signal, Instant)| last == signal && now - at < SAME_REQUEST;
        if self.last_signal.is_some_and(again) {
            return;
        }
        self.last_signal = Some((signal, now));
        self.debugger.terminate_gdb();
        let code = 128_u8.saturating_add(u8::try_from(signal as i32).unwrap_or(0));
        if self.is_over {
            // Only output is left, and its reader does not read it.
            self.code.get_or_insert(code);
            self.output_until = Some(now);
        } else if self.output_until.is_some() {
            // The daemons have not ended after SIGKILL was ordered, so they are killed.
            for link in self.nodes.living_links() {
                let (process, _) = self.nodes.process_of(link);
                let _ = kill(Pid::from_raw(process.cast_signed()), Signal::SIGKILL);
            }
        } else if self.escalation.is_some() {
            self.print("killing all ranks");
            self.escalation = Some(Escalation::kill(now));
            self.output_until = Some(now);
        } else {
            let message = format!(
                "{signal} received, the ranks are asked to end; a second signal kills them"
            );
            self.end(|now| Escalation::signal(signal, now), code, &message);
        }
    }

    fn check_output(&mut self) {
        let events = self.output.progress();
        for (node, written) in events.written {
            self.nodes.order_one(node, &Order::OutputTaken(written));
        }
        let Some(BrokenOutput { place: name, error }) = events.broken else {
            return;
        };
        let reason = match error {
            Errno::EBADF => format!("{CLOSED}, and a rank has written there"),
            error => cause(&error.into()),
        };
        let code = if error == Errno::EPIPE { 128 + 13 } else { 1 };
        if self.is_over {
            self.print(&format!("cannot write {name}: {reason}"));
            self.code.get_or_insert(code);
            return;
        }
        let message = format!("cannot write {name}: {reason}; the job is ended");
        self.end(Escalation::failure, code, &message);
    }

    fn receive_events(&mut self, link: usize) {
        loop {
            match self.nodes.take(link) {
                Ok(Some((node, NodeMessage::Event(event)))) => {
                    let events = self.nodes.combine(node, event);
                    events
                        .into_iter()
                        .for_each(|event| self.handle_event(node, event));
                }
                Ok(Some((node, NodeMessage::Lost(loss)))) => self.host_is_lost(node, &loss),
                Ok(None) => return,
                Err(_) => {
                    return self
                        .print("the node daemon speaks another language: installations are mixed");
                }
            }
        }
    }

    /// Handles an event of the job. `node`: the node that sent the event, or the last node to report it if it is
    /// combined.
    fn handle_event(&mut self, node: usize, event: NodeEvent) {
        match event {
            NodeEvent::Output {
                rank,
                stream,
                bytes,
            } => self.output.write(node, rank, stream, bytes),
            NodeEvent::Failed(failure) => self.failed(node, &failure),
            NodeEvent::InputTaken(bytes) => self.input.taken(bytes),
            NodeEvent::InputClosed => self.input.close(),
            NodeEvent::Notice(message) => {
                let message = self.of_host(node, message);
                self.print(&message);
            }
            NodeEvent::Remark(message) => {
                if !std::mem::replace(&mut self.has_remarked, true) {
                    self.print(&format!("{message} (printed once per job)"));
                }
            }
            NodeEvent::Program { path, ranks } => self.debugger.found(&path, &ranks),
            NodeEvent::Started(started) => self.started(node, &started),
            NodeEvent::Held => self.held(),
            NodeEvent::Standstill(seconds) => self.stands_still(seconds),
            NodeEvent::Reached { phase, at } => {
                if let Some(phases) = &mut self.phases {
                    phases.record(phase, Duration::from_nanos(at));
                }
            }
            NodeEvent::Broken { message, code } => {
                let message = self.of_host(node, message);
                self.end(Escalation::kill, code, &message);
            }
            NodeEvent::Stats(bytes) => {
                let added = self.stats.as_mut().map(|stats| stats.add(&bytes));
                if let Some(Err(message)) = added {
                    self.print(&message);
                }
            }
            NodeEvent::Waits(seen) => {
                if let Some(query_server) = &mut self.query_server {
                    query_server.seen(node, seen);
                }
            }
            NodeEvent::Ended(summary) => self.handle_all_ended(&summary),
            // These events were forwarded between nodes, or handled before the front was made.
            NodeEvent::Watch(_)
            | NodeEvent::Location(_)
            | NodeEvent::Quiet(_)
            | NodeEvent::Fence(_)
            | NodeEvent::NoFence
            | NodeEvent::Ready => (),
        }
    }

    fn started(&mut self, node: usize, started: &[(u32, u32)]) {
        if self.verbose {
            for (rank, pid) in started {
                let message = format!("rank {rank} is process {pid}");
                let message = self.of_host(node, message);
                self.print(&message);
            }
        }
        self.debugger.started(node, started);
    }

    /// Handles the event that all ranks are held for a debugger.
    fn held(&mut self) {
        if self.escalation.is_some() {
            // The job has failed already.
            return;
        }
        // If a debugger has already stored a program to start, the program must run before this process stops at the
        // breakpoint.
        let named = self.debugger.tool();
        let is_named = named.is_some();
        if let Some(tool) = named {
            self.order(&Order::Tool(tool));
            let _ = self.nodes.flush();
        }
        let tool = self.debugger.stop_at_breakpoint();
        if let Some(tool) = tool.filter(|_| !is_named) {
            self.order(&Order::Tool(tool));
        }
        match self.debugger.start_gdb() {
            Ok(true) => (),
            Ok(false) => self.release(),
            Err(message) => self.end(Escalation::kill, 1, &message),
        }
    }

    /// Reports a standstill, with the command that shows the reason.
    fn stands_still(&mut self, seconds: u64) {
        if self.escalation.is_some() {
            return;
        }
        let show = prepare::command("rmpi-queues");
        let remedy = show.map_or_else(String::new, |show| {
            let pid = std::process::id();
            format!("; to see who waits for what: {show} {pid}")
        });
        self.print(&format!(
            "no rank has made progress for {seconds} s{remedy}"
        ));
    }

    fn release(&mut self) {
        self.order(&Order::Release);
        self.start_clock();
    }

    fn failed(&mut self, node: usize, failure: &RankFailure) {
        if self.escalation.is_some() {
            // Failures of ranks that are being ended are not reported.
            return;
        }
        let message = failure.on_host(self.nodes.host(node)).to_string();
        let unsaid = failure.finalized && self.quiet;
        // After `MPI_Abort` the job ends even with `--keep-going`.
        if self.keep_going && !unsaid && !matches!(failure.how, FailureCause::Abort { .. }) {
            self.code.get_or_insert_with(|| failure.exit_code());
            if self.failed.is_none() {
                self.print(&format!("{message}; the others go on"));
            }
            let order = Order::Lost {
                ranks: vec![StridedRanks::of(failure.rank)],
                why: message.clone(),
            };
            self.order(&order);
            let (count, _) = self.failed.get_or_insert((0, message));
            *count += 1;
            return;
        }
        if !failure.finalized {
            return self.end(Escalation::failure, failure.exit_code(), &message);
        }
        if self.code.is_none() {
            if !self.quiet {
                self.print(&message);
            }
            self.code = Some(failure.exit_code());
        }
    }

    fn handle_all_ended(&mut self, summary: &NodeSummary) {
        if self.nodes.has_lost_any() {
            // Kills processes that are left of ranks whose daemon was lost.
            clear_up(0);
        }
        self.report_end(summary);
    }

    /// Reports how the job was ended.
    fn report_end(&mut self, summary: &NodeSummary) {
        let ranks = |count| counted(count, "rank", "ranks");
        match (summary.signalled, summary.killed) {
            (0, 0) => (),
            (0, killed) => self.print(&format!("killed {}", ranks(killed))),
            (signalled, 0) => self.print(&format!("ended the remaining {}", ranks(signalled))),
            (signalled, killed) => {
                let message = format!(
                    "ended the remaining {}, {killed} of them with SIGKILL",
                    ranks(signalled)
                );
                self.print(&message);
            }
        }
        if summary.leftovers > 0 {
            self.print(&format!(
                "ended {} that ranks had left behind",
                counted(summary.leftovers, "process", "processes")
            ));
        }
        if summary.tools > 0 {
            self.print(&format!(
                "ended {} of the debugger, which stayed when all ranks had ended",
                counted(summary.tools, "process", "processes")
            ));
        }
        if !summary.stubborn.is_empty() {
            let pids: Vec<String> = summary.stubborn.iter().map(u32::to_string).collect();
            self.print(&format!(
                "{} still there after SIGKILL: {}",
                counted(
                    u32::try_from(pids.len()).unwrap_or(u32::MAX),
                    "process is",
                    "processes are"
                ),
                pids.join(" ")
            ));
        }
        self.sum_up();
        if let Some(until) = &mut self.output_until {
            *until = Instant::now() + LAST_OUTPUT_WITHIN;
        }
        self.is_over = true;
    }

    /// Prints the final reports.
    fn sum_up(&mut self) {
        if let Some((count, first)) = self.failed.take() {
            let count = counted(count, "rank has failed", "ranks have failed");
            self.print(&format!("{count}; the first: {first}"));
        }
        if let Some(mut phases) = self.phases.take() {
            phases.reach("nothing of the job left", now());
            let lines = phases.lines();
            lines.iter().for_each(|line| self.print(line));
        }
        self.report_stats();
    }

    fn report_stats(&mut self) {
        let Some(mut stats) = self.stats.take() else {
            return;
        };
        let (is_ready, wrong) = stats.finish();
        is_ready
            .iter()
            .chain(&wrong)
            .for_each(|message| self.print(message));
        if !wrong.is_empty() {
            self.code.get_or_insert(1);
        }
    }

    /// Prefixes a daemon's message with the daemon's host if the job has several nodes.
    fn of_host(&self, node: usize, message: String) -> String {
        match self.nodes.count() {
            1 => message,
            _ => format!("host {}: {message}", self.nodes.host(node)),
        }
    }
}

/// The host name of this machine.
pub(crate) fn host() -> String {
    let name = nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|_| "localhost".to_owned())
}

/// Source of an event that poll reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FrontReadiness {
    Signals,
    Output,
    Input,
    /// The connection of the link of this number.
    Connection(usize),
    Debugger,
    Gdb,
    /// The query server.
    Query(query_server::QueryReadiness),
}
