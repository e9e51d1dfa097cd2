// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts a rank's process: the steps between `fork` and `execve`.

use super::hold;
use crate::front;
use crate::job::{JobProgram, NodeJob};
use crate::spawn::{self, Forked};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::resource::{Resource, rlim_t, setrlimit};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::unistd::{Pid, dup2_stderr, dup2_stdin, dup2_stdout, execve};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;
use wireup::{BOOT_VARIABLE, Boot, JobStreamKey, NodeMap, Ranks};

/// Lowest number of the descriptors that a rank inherits for the library. Small numbers are left free because scripts
/// use them.
const PRIVATE_DESCRIPTORS_FROM: i32 = 100;

/// Common parameters of all ranks of a node.
pub(crate) struct SpawnContext {
    /// Pid of the daemon.
    pub(crate) daemon: Pid,
    /// The ranks of the node.
    pub(crate) ranks: Ranks,
    /// The node of each rank of the job; `None` if the front has left [`NodeJob::nodes`] empty.
    pub(crate) nodes: Option<NodeMap>,
    /// Name of the daemon's abstract socket.
    pub(crate) address: String,
    /// The node segment of the ranks' first MPI programs.
    pub(crate) segment: Rc<OwnedFd>,
    /// Pipe to which a rank that cannot start writes the reason.
    pub(crate) failure_pipe: OwnedFd,
    /// The signal mask that ranks get: the daemon's mask before it blocked SIGCHLD.
    pub(crate) signals: SigSet,
    /// When the daemon received the order to start ranks, on the monotonic clock of its machine.
    pub(crate) ordered_at: Duration,
    /// The limit of open files that ranks get, soft and hard: the daemon's limit before it was raised.
    pub(crate) files: (rlim_t, rlim_t),
}

/// Descriptors 0, 1, 2 and the sockets of one rank.
pub(crate) struct RankDescriptors<'a> {
    pub(crate) input: BorrowedFd<'a>,
    pub(crate) output: BorrowedFd<'a>,
    pub(crate) error: BorrowedFd<'a>,
    pub(crate) control: BorrowedFd<'a>,
    /// The PMI-1 socket, for MPICH's library and its derivatives.
    pub(crate) pmi: BorrowedFd<'a>,
}

/// The step at which the start of a rank failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpawnStep {
    /// Setting up descriptors, limits and signals.
    Prepare = 1,
    /// Changing to the working directory.
    Folder = 2,
    /// Executing the program.
    Program = 3,
}

/// Bytes of a failure report: rank, step, error number. They are at most `PIPE_BUF`, so reports are written atomically.
pub(crate) const SPAWN_FAILURE_BYTES: usize = 9;

/// Starts local rank `local`; returns its pid.
pub(crate) fn start(
    job: &NodeJob,
    spawn_context: &SpawnContext,
    local: u32,
    descriptors: &RankDescriptors<'_>,
) -> Result<u32, Errno> {
    if let Forked::Parent(pid) = spawn::fork()? {
        return Ok(pid);
    }
    let (step, error) = match exec_rank(job, spawn_context, local, descriptors) {
        Ok(never) => match never {},
        Err(problem) => problem,
    };
    complain(spawn_context, job.ranks[local as usize].rank, step, error);
    spawn::leave(127)
}

type Problem = (SpawnStep, Errno);

fn exec_rank(
    job: &NodeJob,
    spawn_context: &SpawnContext,
    local: u32,
    descriptors: &RankDescriptors<'_>,
) -> Result<std::convert::Infallible, Problem> {
    let prepare = |error| (SpawnStep::Prepare, error);
    spawn::die_with(spawn_context.daemon).map_err(prepare)?;
    let (segment, control, pmi) = wire(spawn_context, descriptors).map_err(prepare)?;
    let placed = &job.ranks[local as usize];
    if let (Some(cpus), false) = (&placed.cpus, placed.preferred) {
        // This fails if a CPU was removed since the mask was read; the rank then keeps the inherited mask.
        let _ = nix::sched::sched_setaffinity(Pid::from_raw(0), &cpus.set());
    }
    let (soft, hard) = spawn_context.files;
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).map_err(prepare)?;
    spawn::default_action(Signal::SIGPIPE);
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&spawn_context.signals), None).map_err(prepare)?;
    let mut boot = Boot {
        job: job.keys.job,
        rank: placed.rank,
        size: job.size,
        local_rank: local,
        ranks: spawn_context.ranks.clone(),
        nodes: spawn_context.nodes.clone(),
        app: placed.app,
        segment_fd: segment,
        control_fd: control,
        address: spawn_context.address.clone(),
        daemon_pid: spawn_context.daemon.as_raw().cast_unsigned(),
        network_key: Some(job.keys.network),
        stream_key: Some(JobStreamKey(job.keys.stream)),
        over_hosts: job.far.is_some(),
        debugged: job.hold,
        crowded: job.crowded,
        leader: None,
        launch: None,
        colocated_ranks: job.far.as_ref().map_or(0, |far| far.colocated.ranks()),
        mask: job.cpus.words(),
    };
    if job.hold {
        hold::wait_for_debugger().map_err(prepare)?;
    }
    boot.launch = Some(job.begun.durations(spawn_context.ordered_at, front::now()));
    let program = &job.programs[placed.app as usize];
    if let Some(folder) = &program.folder {
        nix::unistd::chdir(folder.as_c_str()).map_err(|error| (SpawnStep::Folder, error))?;
    }
    run(program, &boot, pmi).map_err(|error| (SpawnStep::Program, error))
}

/// Installs every descriptor that the rank inherits; returns the descriptor numbers of segment, control socket and PMI
/// socket.
fn wire(
    spawn_context: &SpawnContext,
    descriptors: &RankDescriptors<'_>,
) -> Result<(i32, i32, i32), Errno> {
    let segment = inherit(spawn_context.segment.as_fd())?;
    let control = inherit(descriptors.control)?;
    let pmi = inherit(descriptors.pmi)?;
    dup2_stdin(descriptors.input)?;
    dup2_stdout(descriptors.output)?;
    dup2_stderr(descriptors.error)?;
    Ok((segment, control, pmi))
}

/// Duplicates a descriptor without close-on-exec, so a rank inherits the copy. The daemon opens its own descriptors
/// with close-on-exec.
fn inherit(descriptor: BorrowedFd<'_>) -> Result<i32, Errno> {
    let copy = |from| fcntl(descriptor, FcntlArg::F_DUPFD(from));
    copy(PRIVATE_DESCRIPTORS_FROM).or_else(|_| copy(3))
}

fn run(program: &JobProgram, boot: &Boot, pmi: i32) -> Result<std::convert::Infallible, Errno> {
    let variables = [
        (BOOT_VARIABLE, boot.to_string()),
        ("RMPI_RANK", boot.rank.to_string()),
        ("RMPI_SIZE", boot.size.to_string()),
        ("RMPI_LOCAL_RANK", boot.local_rank.to_string()),
        ("RMPI_LOCAL_SIZE", boot.local_size().to_string()),
        ("PMI_FD", pmi.to_string()),
        ("PMI_RANK", boot.rank.to_string()),
        ("PMI_SIZE", boot.size.to_string()),
        ("MPI_LOCALRANKID", boot.local_rank.to_string()),
        ("MPI_LOCALNRANKS", boot.local_size().to_string()),
    ];
    let text = |(name, value)| CString::new(format!("{name}={value}")).map_err(|_| Errno::EINVAL);
    let own: Vec<CString> = variables.into_iter().map(text).collect::<Result<_, _>>()?;
    // The environment is a list of references, because copies of the texts would use new pages in each rank.
    let environment: Vec<&CStr> = program
        .environment
        .iter()
        .filter(|set| !is_of_other_launcher(set))
        .chain(&own)
        .map(CString::as_c_str)
        .collect();
    match execve(&program.path, &program.arguments, &environment) {
        // A script without `#!` is run by `/bin/sh`, as a shell would do.
        Err(Errno::ENOEXEC) if is_text(&program.path) => {
            let shell = c"/bin/sh";
            let rest = program.arguments.iter().skip(1).map(CString::as_c_str);
            let arguments: Vec<&CStr> = [shell, &program.path].into_iter().chain(rest).collect();
            execve(shell, &arguments, &environment)
        }
        other => other,
    }
}

/// Whether a variable comes from another launcher that has started this launcher. Ranks do not inherit such variables,
/// because MPICH's library would then connect to the other launcher.
fn is_of_other_launcher(set: &CStr) -> bool {
    let set = set.to_bytes();
    [&b"PMI_"[..], b"MPI_LOCAL"]
        .iter()
        .any(|begin| set.starts_with(begin))
}

/// Whether a file is a script and not a program for another machine: its first line has no NUL. Shells use the same
/// test.
fn is_text(path: &CStr) -> bool {
    use std::io::Read;
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::OsStr::from_bytes(path.to_bytes());
    let mut head = [0; 80];
    let read = std::fs::File::open(path).and_then(|mut file| file.read(&mut head));
    let line = |count: usize| head[..count].split(|byte| *byte == b'\n').next();
    read.is_ok_and(|count| line(count).is_none_or(|line| !line.contains(&0)))
}

fn complain(spawn_context: &SpawnContext, rank: u32, step: SpawnStep, error: Errno) {
    let mut bytes = [0; SPAWN_FAILURE_BYTES];
    bytes[..4].copy_from_slice(&rank.to_le_bytes());
    bytes[4] = step as u8;
    bytes[5..].copy_from_slice(&(error as i32).to_le_bytes());
    // If the daemon is gone, no process reads the report.
    let _ = nix::unistd::write(&spawn_context.failure_pipe, &bytes);
}

/// Decodes a failure report: the rank, and the reason for the user.
pub(crate) fn describe_failure(bytes: [u8; SPAWN_FAILURE_BYTES], job: &NodeJob) -> (u32, String) {
    let [a, b, c, d, step, error @ ..] = bytes;
    let rank = u32::from_le_bytes([a, b, c, d]);
    let cause = Errno::from_raw(i32::from_le_bytes(error))
        .desc()
        .to_lowercase();
    let program = job.ranks.iter().find(|placed| placed.rank == rank);
    let Some(program) = program.map(|placed| &job.programs[placed.app as usize]) else {
        return (rank, cause);
    };
    let path = program.path.to_string_lossy();
    let folder = program
        .folder
        .as_ref()
        .map(|folder| folder.to_string_lossy());
    let message = match step {
        2 => format!(
            "cannot enter the folder {}: {cause}",
            folder.unwrap_or_default()
        ),
        3 => format!(
            "cannot execute {path}: {cause}{}",
            remedy(Errno::from_raw(i32::from_le_bytes(error)))
        ),
        _ => format!("cannot prepare its process: {cause}"),
    };
    (rank, message)
}

fn remedy(error: Errno) -> &'static str {
    match error {
        Errno::ENOENT => " (the interpreter or loader that it names does not exist)",
        Errno::E2BIG => " (arguments and environment are too long together)",
        Errno::ENOEXEC => {
            " (built for another kind of machine, or damaged: build it here with rmpicc)"
        }
        _ => "",
    }
}
