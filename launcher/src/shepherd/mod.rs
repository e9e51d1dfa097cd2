// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shepherd of a host in a job over several hosts, comparable to Hydra's proxy. It starts the daemon of its host,
//! starts the shepherds of other hosts by a remote shell, and forwards messages between the front and all daemons and
//! shepherds below.
//!
//! The front starts a shepherd on its own machine, in a new session, so that the terminal does not stop it together
//! with the front. This shepherd starts up to [`FAN_OUT`](fan_out::FAN_OUT) others, which start the remaining ones. A
//! shepherd communicates over the standard input and output of the remote shell that started it, so that only the
//! shell's port must be open. The module `tree` makes the decisions; this file makes the system calls.
//!
//! In an allocation of Slurm or Flux, one job step starts the shepherds of all other hosts (`step`). Each of them
//! connects to the shepherd that would otherwise have started it (`handshake`). A shepherd that does not connect in
//! time is started again by the remote shell.
//!
//! When the connection to the peer above closes, a shepherd closes its connections to its daemon and to the shepherds
//! below. The daemon then ends its ranks, and each shepherd below does the same as this shepherd.
//!
//! A shepherd has one thread, since it forks its daemon.

mod children;
mod cleanup;
pub(crate) mod fan_out;
mod handshake;
mod join;
pub(crate) mod protocol;
pub(crate) mod shell;
pub(crate) mod step;
mod step_command;
pub(crate) mod tree;

use crate::connection::{Disconnected, FrameConnection};
use crate::hosts::HostMachine;
use crate::link::Inbox;
use crate::program::cause;
use crate::spawn::{self, Forked};
use crate::{daemon, front, plan};
use children::{Children, ShellStream};
use cleanup::DaemonCleanup;
use handshake::StepListener;
use locked_memory::LockedMemory;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::unistd::{dup2_stdin, dup2_stdout};
use protocol::{DownMessage, HostFacts, JobStep, NodeLoss, ShepherdConfig, UpMessage, greeting};
use shell::ShellExit;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use step::StepDescription;
use step_command::StepCommand;
use tree::ShepherdTree;

/// Size of the read buffer.
const SCRATCH_BYTES: usize = 64 << 10;
/// Timeout for the first message.
const CONFIG_WITHIN: Duration = Duration::from_secs(60);
/// Interval between two checks of processes that are about to exit.
const CHECK_PERIOD: Duration = Duration::from_millis(10);
/// Time within which all children must exit when a shepherd ends.
const END_WITHIN: Duration = Duration::from_secs(3);
/// Time within which a step must exit after its tasks have exited; then it is signalled.
const STEP_OUTLIVES: Duration = Duration::from_secs(2);
/// Interval between two checks of a step that is about to exit, and of shepherds that are expected.
const STEP_CHECK_PERIOD: Duration = Duration::from_millis(100);
/// Timeout for sending the last messages upward.
const FLUSH_WITHIN: Duration = Duration::from_secs(2);
/// If the user gives no port range, the shepherds of a step listen at the port of the front's shepherd or at one of
/// this many following ports.
const OTHER_PORTS: u16 = 15;
/// Interval between two checks of a daemon that is about to exit, which usually takes less than a millisecond.
const BURY_EVERY: Duration = Duration::from_millis(1);

/// Runs the shepherd in this process, which was started by a remote shell.
pub(crate) fn serve_remote() -> u8 {
    let connection = take_standard_streams().and_then(|(from, to)| FrameConnection::over(from, to));
    match connection {
        Ok(connection) => run_greeted(connection, None),
        Err(error) => {
            eprintln!("rmpiexec: a shepherd needs standard input and output: {error}");
            1
        }
    }
}

/// Runs the shepherd in this process, which was started by a step of a batch system.
pub(crate) fn serve_in_step() -> u8 {
    let joined = take_standard_streams().map_err(|error| cause(&error));
    match joined.and_then(|(from, _)| join::join(from)) {
        Ok((connection, listener)) => run_greeted(connection, listener),
        Err(message) => {
            eprintln!("rmpiexec: host {}: {message}", front::host());
            1
        }
    }
}

fn run_greeted(mut connection: FrameConnection, listener: Option<StepListener>) -> u8 {
    connection.outbox.extend(greeting());
    watch(connection, true, listener)
}

/// Takes standard input and output, and replaces them by `/dev/null`, so that no other code uses the connection.
fn take_standard_streams() -> std::io::Result<(OwnedFd, OwnedFd)> {
    // The copies are close-on-exec. If a shell that this process starts inherited them, the peer would not see this
    // process end.
    let from = std::io::stdin().as_fd().try_clone_to_owned()?;
    let to = std::io::stdout().as_fd().try_clone_to_owned()?;
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&nothing)?;
    dup2_stdout(&nothing)?;
    Ok((from, to))
}

/// Runs the shepherd of the front in this process, which was forked for it.
pub(crate) fn serve(connection: FrameConnection) -> u8 {
    // The parent need not send heartbeats: when it ends, the connection closes.
    watch(connection, false, None)
}

/// Receives the configuration and runs the shepherd. `is_watched`: see [`ShepherdTree::new`]. `listener`: the listener
/// for the shepherds below, if it is open already.
fn watch(mut connection: FrameConnection, is_watched: bool, listener: Option<StepListener>) -> u8 {
    // This fails if a remote shell has created a session already.
    let _ = nix::unistd::setsid();
    let _ = prctl::set_child_subreaper(true);
    let _ = prctl::set_name(c"rmpi-shepherd");
    let Some(begin) = receive_config(&mut connection) else {
        return 1;
    };
    let inbox = std::mem::take(&mut connection.inbox);
    Shepherd::new(connection, (begin, inbox), is_watched, listener).run()
}

/// Waits for the first message.
fn receive_config(connection: &mut FrameConnection) -> Option<ShepherdConfig> {
    let until = Instant::now() + CONFIG_WITHIN;
    let mut scratch = vec![0; SCRATCH_BYTES];
    loop {
        match DownMessage::take(&mut connection.inbox) {
            Ok(Some(DownMessage::Begin(begin))) => return Some(*begin),
            Ok(None) => {}
            _ => return None,
        }
        let is_flushed = connection.flush().ok()?;
        let left = until.checked_duration_since(Instant::now())?;
        let timeout = PollTimeout::try_from(left.as_millis()).unwrap_or(PollTimeout::MAX);
        let mut fds = vec![PollFd::new(connection.reading(), PollFlags::POLLIN)];
        if !is_flushed {
            fds.push(PollFd::new(connection.writing(), PollFlags::POLLOUT));
        }
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => connection.fill(&mut scratch).ok()?,
            Err(_) => return None,
        }
    }
}

/// The daemon of this host.
struct Local {
    pid: u32,
    /// The connection to the daemon; `None` once the daemon has closed it.
    connection: Option<FrameConnection>,
}

/// Source of an event that poll reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Readiness {
    Above,
    Daemon,
    Below(usize, ShellStream),
    /// Output of the step command.
    Step(ShellStream),
    /// A new connection, or progress of a handshake.
    Listener,
    /// Room to write.
    Room,
}

/// The shepherd of one node: it relays frames between the peer above, its own daemon and the shepherds below.
struct Shepherd {
    above: FrameConnection,
    /// Whether the peer above is another shepherd, not the front.
    is_watched: bool,
    tree: ShepherdTree,
    local: Option<Local>,
    /// Set once the daemon has closed its connection.
    cleanup: Option<DaemonCleanup>,
    children: Children,
    /// Listener for the shepherds of a step.
    listener: Option<StepListener>,
    /// The description that the shepherds of the step read; `None` if no step was started.
    call: Option<StepDescription>,
    /// Since when only the step command is left.
    step_alone: Option<Instant>,
    /// Whether the user was informed why hosts do not connect.
    reported: bool,
    begun: Instant,
    scratch: Vec<u8>,
}

impl Shepherd {
    fn new(
        above: FrameConnection,
        (mut begin, inbox): (ShepherdConfig, Inbox),
        is_watched: bool,
        listener: Option<StepListener>,
    ) -> Self {
        let mut children = Children::default();
        let (listener, call) = match begin.step.take() {
            Some(step) => begin_step(&begin, step, &mut children).unzip(),
            None => (listener, None),
        };
        let mut tree = ShepherdTree::new(begin, inbox, is_watched, Duration::ZERO);
        if listener.is_none() {
            tree.expect_no_more();
        }
        Self {
            above,
            is_watched,
            tree,
            local: None,
            cleanup: None,
            children,
            listener,
            call,
            step_alone: None,
            reported: false,
            begun: Instant::now(),
            scratch: vec![0; SCRATCH_BYTES],
        }
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    fn run(mut self) -> u8 {
        self.start_daemon();
        // Further messages may have arrived together with the configuration.
        self.tree.receive_from_above(&[]);
        loop {
            let now = self.now();
            if now >= self.tree.next_time() {
                self.tree.on_time(now);
            }
            self.accept_connections();
            self.start_children();
            self.clean_up();
            if self.flush_above().is_err() {
                self.tree.parent_closed();
            }
            if self.tree.is_orphan() {
                self.end_all();
                return 1;
            }
            if self.tree.is_over() && self.above.is_flushed() && self.is_step_over() {
                if self.is_watched {
                    self.above.finish(FLUSH_WITHIN);
                }
                return 0;
            }
            self.flush_below();
            for source in self.wait() {
                self.attend(source);
            }
        }
    }

    /// Accepts connections of the step's shepherds, as long as any of them is expected.
    fn accept_connections(&mut self) {
        if !self.tree.is_any_expected() && self.listener.take().is_some() {
            // Lines that the step printed during its start are not needed any more.
            self.children.step_mut().map(StepCommand::drop_lines);
        }
        let Some(listener) = &mut self.listener else {
            return;
        };
        let now = self.begun.elapsed();
        for (node, stream) in listener.continue_handshakes(Instant::now()) {
            let number = self.tree.connect(node, now);
            let adopted = number.map(|number| (number, self.children.adopt(number, stream)));
            if let Some((number, Err(_))) = adopted {
                self.tree.child_closed(number, &ShellExit::default(), now);
            }
        }
    }

    /// Whether the step has terminated. Called when nothing except the step is left; `STEP_OUTLIVES` after the first
    /// such call, the step is ended.
    fn is_step_over(&mut self) -> bool {
        let since = *self.step_alone.get_or_insert_with(Instant::now);
        if self.children.is_step_running() && since.elapsed() > STEP_OUTLIVES {
            self.children.end_step();
            return true;
        }
        !self.children.is_step_running()
    }

    /// Reads the step's output. Shepherds that failed according to the output are started by the remote shell instead;
    /// if the remote shell fails too, its error has the reason.
    fn handle_step_output(&mut self, stream: ShellStream) {
        let Some(step) = self.children.step_mut() else {
            return;
        };
        for line in step.read_lines(stream, &mut self.scratch) {
            let failed = step::failed_hosts(&line);
            for host in &failed {
                let node = self.call.as_ref().and_then(|call| call.node(host));
                node.into_iter()
                    .for_each(|node| self.tree.will_not_connect(node));
            }
            let are_ports_closed = line.contains(join::PORTS_CLOSED);
            if are_ports_closed && !std::mem::replace(&mut self.reported, true) {
                print_line(&format!(
                    "{line}; hosts are reached one by one, which takes longer. RMPI_PORT_RANGE names ports that are open"
                ));
            }
            if failed.is_empty() && !line.starts_with("rmpiexec: ") {
                step.keep_line(line);
            }
        }
    }

    fn start_daemon(&mut self) {
        if self.tree.own().is_none() {
            return;
        }
        match self.make_daemon() {
            Ok(Some(local)) => {
                self.local = Some(local);
                self.tree.daemon_started(facts());
            }
            Ok(None) => (),
            Err(error) => self.tree.daemon_ended(Some(NodeLoss {
                message: format!(
                    "cannot start a node daemon: {}",
                    error.desc().to_lowercase()
                ),
                code: 1,
            })),
        }
    }

    fn make_daemon(&mut self) -> Result<Option<Local>, Errno> {
        spawn::default_action(nix::sys::signal::Signal::SIGCHLD);
        let (ours, theirs) = FrameConnection::pair().map_err(|_| Errno::last())?;
        match spawn::fork()? {
            Forked::Parent(pid) => Ok(Some(Local {
                pid,
                connection: Some(ours),
            })),
            Forked::Child => {
                drop(ours);
                self.above.close();
                // The daemon must not hold the listener or the pipes of the children open.
                drop((self.listener.take(), std::mem::take(&mut self.children)));
                spawn::leave(daemon::serve(theirs))
            }
        }
    }

    fn start_children(&mut self) {
        let now = self.now();
        while let Some((number, target)) = self.tree.next_start(now) {
            let command = self.tree.shell().command(&target);
            if let Err(closed) = self.children.start(number, &command) {
                self.tree.child_closed(number, &closed, now);
            }
        }
    }

    /// Kills dropped children, evaluates the children that have ended, and continues the clean-up of the daemon.
    fn clean_up(&mut self) {
        while let Some(number) = self.tree.next_dropped() {
            self.children.kill(number);
        }
        let now = self.now();
        self.children.reap();
        if self.children.has_step_ended() {
            self.tree.expect_no_more();
        }
        while let Some((number, closed)) = self.next_ended() {
            self.tree.child_closed(number, &closed, now);
        }
        let is_closed = |local: &mut Local| local.connection.is_none();
        if let Some(local) = self.local.take_if(is_closed) {
            self.cleanup = Some(DaemonCleanup::new(local.pid, Instant::now()));
        }
        if let Some(mut cleanup) = self.cleanup.take() {
            match self.children.clean_up(&mut cleanup, Instant::now()) {
                Some(ending) => self.tree.daemon_ended(loss(cleanup.pid(), ending)),
                None => self.cleanup = Some(cleanup),
            }
        }
    }

    fn next_ended(&mut self) -> Option<(usize, ShellExit)> {
        let tree = &self.tree;
        self.children.next_ended(|number| tree.is_through(number))
    }

    fn flush_above(&mut self) -> Result<(), Disconnected> {
        let bytes = self.tree.above();
        if self.is_watched && !bytes.is_empty() {
            // `srun` may buffer output up to the next newline.
            UpMessage::Line.put(bytes);
        }
        self.above.outbox.take(self.tree.above());
        self.above.flush().map(|_| ())
    }

    /// Sends pending data to the daemon, the step and the children. A closed connection is handled where data is read
    /// from it.
    fn flush_below(&mut self) {
        if let Some(connection) = self
            .local
            .as_mut()
            .and_then(|local| local.connection.as_mut())
        {
            if let Some(orders) = self.tree.orders() {
                connection.outbox.take(orders);
            }
            send_pending(connection);
        }
        self.children.step_mut().map(StepCommand::flush);
        for (number, connection) in self.children.connections() {
            connection.outbox.take(self.tree.below(number));
            send_pending(connection);
        }
    }

    fn wait(&self) -> Vec<Readiness> {
        let mut all = vec![(
            Readiness::Above,
            PollFd::new(self.above.reading(), PollFlags::POLLIN),
        )];
        if let Some(connection) = self
            .local
            .as_ref()
            .and_then(|local| local.connection.as_ref())
        {
            all.push((
                Readiness::Daemon,
                PollFd::new(connection.reading(), PollFlags::POLLIN),
            ));
            all.extend(room(connection));
        }
        all.extend(room(&self.above));
        for (number, stream, end) in self.children.reading() {
            let source = Readiness::Below(number, stream);
            all.push((source, PollFd::new(end, PollFlags::POLLIN)));
        }
        all.extend(self.children.writing().filter_map(room));
        all.extend(self.wait_for_step());
        let mut left = self.tree.next_time().saturating_sub(self.now());
        if self.children.has_ending() {
            left = left.min(CHECK_PERIOD);
        }
        if self.cleanup.is_some() {
            left = left.min(BURY_EVERY);
        }
        if self.step_alone.is_some() || self.listener.is_some() {
            left = left.min(STEP_CHECK_PERIOD);
        }
        let timeout = PollTimeout::try_from(left.as_millis() + 1).unwrap_or(PollTimeout::MAX);
        let (sources, mut fds): (Vec<Readiness>, Vec<PollFd<'_>>) = all.into_iter().unzip();
        let _ = poll(&mut fds, timeout);
        let is_ready = |fd: &PollFd<'_>| fd.revents().is_some_and(|flags| !flags.is_empty());
        let both = sources.into_iter().zip(&fds);
        both.filter_map(|(source, fd)| is_ready(fd).then_some(source))
            .collect()
    }

    /// Descriptors of the step and of the listener to poll.
    fn wait_for_step(&self) -> impl Iterator<Item = (Readiness, PollFd<'_>)> {
        let reading = |end| PollFd::new(end, PollFlags::POLLIN);
        let step = self.children.step().into_iter();
        let output = step.clone().flat_map(StepCommand::reading);
        let output = output.map(move |(stream, end)| (Readiness::Step(stream), reading(end)));
        let pending_peers = self.listener.iter().flat_map(StepListener::reading);
        let pending_peers = pending_peers.map(move |end| (Readiness::Listener, reading(end)));
        let room = step.filter_map(|step| room(step.writing()));
        output.chain(pending_peers).chain(room)
    }

    fn attend(&mut self, source: Readiness) {
        match source {
            Readiness::Above => match self.above.read(&mut self.scratch) {
                Ok(bytes) => self.tree.receive_from_above(&self.scratch[..bytes]),
                Err(Disconnected) => self.tree.parent_closed(),
            },
            Readiness::Daemon => {
                let Some(local) = &mut self.local else { return };
                let Some(connection) = &mut local.connection else {
                    return;
                };
                match connection.read(&mut self.scratch) {
                    Ok(bytes) => self.tree.receive_from_daemon(&self.scratch[..bytes]),
                    Err(Disconnected) => local.connection = None,
                }
            }
            Readiness::Below(number, ShellStream::Messages) => {
                if let Some(bytes) = self.children.read(number, &mut self.scratch) {
                    self.tree.receive_from_child(number, &self.scratch[..bytes]);
                }
            }
            Readiness::Below(number, ShellStream::Stderr) => {
                self.children.read_stderr(number, &mut self.scratch);
            }
            Readiness::Step(stream) => self.handle_step_output(stream),
            // The main loop handles these in each iteration.
            Readiness::Listener | Readiness::Room => (),
        }
    }

    /// Ends everything that this process has started, after the connection above has closed. The daemon ends its ranks
    /// when its connection closes; the shepherds below end when their connections close.
    fn end_all(mut self) {
        let daemon = self.local.take().map(|local| local.pid);
        let daemon = daemon.or_else(|| self.cleanup.map(|cleanup| cleanup.pid()));
        self.children.hang_up();
        if self.tree.is_any_expected() {
            // Shepherds that have not connected yet have no connection that could close; the step must end them.
            self.children.step().map(StepCommand::end);
        }
        let until = Instant::now() + END_WITHIN;
        while Instant::now() < until && !self.children.have_all_ended(daemon) {
            std::thread::sleep(CHECK_PERIOD);
        }
        self.children.end_leftovers(END_WITHIN);
        self.children.end_step();
        self.children.kill_all();
    }
}

/// Opens the listener for the step's shepherds and starts the step; `None` if either fails.
fn begin_step(
    begin: &ShepherdConfig,
    mut step: JobStep,
    children: &mut Children,
) -> Option<(StepListener, StepDescription)> {
    let listener = StepListener::open(step.key, step.ports).ok()?;
    let port = listener.port().ok()?;
    step.ports
        .get_or_insert_with(|| (port, port.saturating_add(OTHER_PORTS)));
    let root = (join::own_addresses(), port);
    let call = StepDescription::new(&step, (&begin.below, begin.own), root);
    match children.start_step(&step.command, &call.encode()) {
        Ok(()) => Some((listener, call)),
        Err(closed) => {
            let (name, why) = (&step.command[0], closed.not_started.unwrap_or_default());
            print_line(&format!(
                "rmpiexec: {name} for all hosts cannot be started: {why}; they are reached one by one"
            ));
            None
        }
    }
}

/// Prints a message for the user, from the front's shepherd.
fn print_line(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The loss of the node if its daemon has ended in an unexpected way; `None` if the daemon exited with code 0.
fn loss(pid: u32, ending: Option<spawn::ChildExit>) -> Option<NodeLoss> {
    let (how, code) = match ending {
        Some(spawn::ChildExit::Code(0)) => return None,
        ending => front::describe_exit(ending),
    };
    Some(NodeLoss {
        message: format!("its node daemon (pid {pid}) {how}; its ranks were killed"),
        code,
    })
}

/// Sends what the stream accepts; discards all data once the peer is gone.
fn send_pending(connection: &mut FrameConnection) {
    if connection.flush().is_err() {
        connection.stop_sending();
    }
}

fn room(connection: &FrameConnection) -> Option<(Readiness, PollFd<'_>)> {
    let waits = !connection.is_flushed();
    waits.then(|| {
        (
            Readiness::Room,
            PollFd::new(connection.writing(), PollFlags::POLLOUT),
        )
    })
}

/// Facts about this host.
fn facts() -> HostFacts {
    let machine = HostMachine::here();
    let granted = crate::quota()
        .unwrap_or(usize::MAX)
        .min(machine.mask.count());
    let cores = plan::described(&machine.mask)
        .groups(crate::TopologyLevel::Core)
        .len();
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX).max(1);
    let devices = std::fs::read_dir("/sys/class/infiniband");
    HostFacts {
        name: front::host(),
        cpus: number(granted),
        cores: number(cores.min(granted)),
        locked: LockedMemory::now().limit_bytes.unwrap_or(u64::MAX),
        has_devices: devices.is_ok_and(|mut devices| devices.next().is_some()),
        machine,
    }
}
