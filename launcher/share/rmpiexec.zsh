#compdef rmpiexec
# SPDX-License-Identifier: MIT OR Apache-2.0

autoload -U is-at-least

_rmpiexec() {
    typeset -A opt_args
    typeset -a _arguments_options
    local ret=1

    if is-at-least 5.2; then
        _arguments_options=(-s -S -C)
    else
        _arguments_options=(-s -C)
    fi

    local context curcontext="$curcontext" state line
    _arguments "${_arguments_options[@]}" : \
'-n+[Ranks to start \[default\: one per CPU that this shell may use, or one per slot of the hosts\]]:RANKS:_default' \
'--np=[Ranks to start \[default\: one per CPU that this shell may use, or one per slot of the hosts\]]:RANKS:_default' \
'--n=[Ranks to start \[default\: one per CPU that this shell may use, or one per slot of the hosts\]]:RANKS:_default' \
'*-x+[Set NAME for the ranks of this program; without a value, pass NAME on as it is here]:NAME[=VALUE]:_default' \
'*--env=[Set NAME for the ranks of this program]:NAME:_default:NAME:_default' \
'*--genv=[Set NAME for the ranks of all programs]:NAME:_default:NAME:_default' \
'--wdir=[Start the ranks of this program in another folder]:FOLDER:_files -/' \
'--wd=[Start the ranks of this program in another folder]:FOLDER:_files -/' \
'--output=[Write what each rank writes into files of this folder, rank.N.out and rank.N.err, and not to the terminal, where only rmpiexec'\''s own words appear; the folder is made if there is none, files of these names are emptied]:FOLDER:_files -/' \
'-s+[Who reads standard input; for all it flows as fast as the slowest takes it \[default\: rank 0\]]:RANK|all|none:_default' \
'--stdin=[Who reads standard input; for all it flows as fast as the slowest takes it \[default\: rank 0\]]:RANK|all|none:_default' \
'--stats=[At the end, tell what each rank sent, how long it waited and who sent to whom\: on standard error, or into FILE, as JSON if its name ends in .json]::FILE:_files' \
'--stats-plot=[Draw who sent how much to whom, and how long each rank waited, into FILE (SVG)]:FILE:_files' \
'--timeout=[End the job after so many seconds, with exit code 124]:SECONDS:_default' \
'--gdb=[Start gdb with these ranks, which wait for it at their first instruction; it takes standard input, and the job goes on when it is left]:RANKS|all:_default' \
'--bind-to=[CPUs that each rank is bound to \[default\: an even share of the cores; where ranks outnumber cores nobody is bound and neighbours prefer the same CPU\]]:none|core|hwthread|numa|socket:((none\:"the CPU mask is left alone"
core\:"one core for each rank"
hwthread\:"one hardware thread for each rank"
numa\:"all CPUs of a NUMA node for each rank"
socket\:"all CPUs of a socket for each rank"))' \
'--map-by=[Where the next rank goes \[default\: slot, ranks in order, a host after the other, and spread evenly over its cores\]; node is the next host, ppr\:N\:node as --ranks-per-node N. More ranks than slots are allowed, unless \:NOOVERSUBSCRIBE stands behind it]:slot|core|numa|socket|node:((slot\:"ranks in order, spread evenly over all cores"
core\:"each rank on the next core, without a gap"
numa\:"each rank on the next NUMA node"
socket\:"each rank on the next socket"
node\:"each rank on the next host, and there as slot"))' \
'*-H+[Start ranks on these hosts, for example a\:2,b\:* or n\[01-16\]\:4; a name alone is one slot, \:* all cores of the host. With --hostfile\: on these hosts of the file]:HOSTS:_hosts' \
'*--host=[Start ranks on these hosts, for example a\:2,b\:* or n\[01-16\]\:4; a name alone is one slot, \:* all cores of the host. With --hostfile\: on these hosts of the file]:HOSTS:_hosts' \
'*--hosts=[Start ranks on these hosts, for example a\:2,b\:* or n\[01-16\]\:4; a name alone is one slot, \:* all cores of the host. With --hostfile\: on these hosts of the file]:HOSTS:_hosts' \
'-f+[Start ranks on the hosts of this file, one on each line, as MPICH (name\:4) or Open MPI (name slots=4) write it; a name alone is all its cores]:FILE:_files' \
'--hostfile=[Start ranks on the hosts of this file, one on each line, as MPICH (name\:4) or Open MPI (name slots=4) write it; a name alone is all its cores]:FILE:_files' \
'--machinefile=[Start ranks on the hosts of this file, one on each line, as MPICH (name\:4) or Open MPI (name slots=4) write it; a name alone is all its cores]:FILE:_files' \
'--machine=[Start ranks on the hosts of this file, one on each line, as MPICH (name\:4) or Open MPI (name slots=4) write it; a name alone is all its cores]:FILE:_files' \
'-N+[Put so many ranks on each host before the next one \[default\: as many as it has slots\]]:RANKS:_default' \
'--ranks-per-node=[Put so many ranks on each host before the next one \[default\: as many as it has slots\]]:RANKS:_default' \
'--ppn=[Put so many ranks on each host before the next one \[default\: as many as it has slots\]]:RANKS:_default' \
'--npernode=[Put so many ranks on each host before the next one \[default\: as many as it has slots\]]:RANKS:_default' \
'--perhost=[Put so many ranks on each host before the next one \[default\: as many as it has slots\]]:RANKS:_default' \
'--rm=[Take hosts and slots from this batch system \[default\: from the one whose job this is, if no --hostfile is given\]]:MANAGER:((none\:"none\: hosts are those of --host and --hostfile"
slurm\:"Slurm"
pbs\:"PBS, Torque"
lsf\:"LSF"
sge\:"Grid Engine"
cobalt\:"Cobalt"
flux\:"Flux"))' \
'--rmk=[Take hosts and slots from this batch system \[default\: from the one whose job this is, if no --hostfile is given\]]:MANAGER:((none\:"none\: hosts are those of --host and --hostfile"
slurm\:"Slurm"
pbs\:"PBS, Torque"
lsf\:"LSF"
sge\:"Grid Engine"
cobalt\:"Cobalt"
flux\:"Flux"))' \
'--launcher=[Reach other hosts with this command in place of ssh]:COMMAND:_default' \
'--launcher-exec=[Reach other hosts with this command in place of ssh]:COMMAND:_default' \
'--prefix=[Where rmpi is installed on the other hosts \[default\: where it is here\]]:FOLDER:_files -/' \
'--heartbeat=[Seconds between two words of another host that it is there, and seconds without one after which it is given up \[default\: 1,20\]]:SECONDS[,DEAD_AFTER]:_default' \
'--topology=[With --dry-run\: as if the machine were this one, for example "socket\:2 numa\:1 core\:8 pu\:2 mask\:0-15"]:TEXT:_default' \
'-l[Begin each line of output with the rank that wrote it]' \
'--tag-output[Begin each line of output with the rank that wrote it]' \
'--prepend-rank[Begin each line of output with the rank that wrote it]' \
'--label[Begin each line of output with the rank that wrote it]' \
'--keep-going[Let the others go on when a rank fails; the first failure is repeated at the end and gives the exit code]' \
'--report[Say which CPUs each rank gets, and at the end how long each phase of the start took]' \
'--stats-calls[Also measure how long each call of MPI takes, and tell which calls took most; some 50 ns more for each call]' \
'--report-bindings[Say which CPUs each rank gets]' \
'--dry-run[Print which rank would go where, and start nothing]' \
'--genvall[Accepted for compatibility\: the environment is always passed on]' \
'--oversubscribe[Accepted for compatibility\: more ranks than CPUs are always allowed]' \
'--allow-run-as-root[Accepted for compatibility\: running as root is always allowed]' \
'-q[Say nothing about ranks that end with a bad code after MPI_Finalize, which have said why themselves]' \
'--quiet[Say nothing about ranks that end with a bad code after MPI_Finalize, which have said why themselves]' \
'-v[Say what is started where]' \
'--verbose[Say what is started where]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'-V[Print version]' \
'--version[Print version]' \
'*::command -- The program and its arguments:_cmdambivalent' \
&& ret=0
}

(( $+functions[_rmpiexec_commands] )) ||
_rmpiexec_commands() {
    local commands; commands=()
    _describe -t commands 'rmpiexec commands' commands "$@"
}

if [ "$funcstack[1]" = "_rmpiexec" ]; then
    _rmpiexec "$@"
else
    compdef _rmpiexec rmpiexec
fi
