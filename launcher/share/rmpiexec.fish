# SPDX-License-Identifier: MIT OR Apache-2.0
complete -c rmpiexec -s n -l np -l n -d 'Ranks to start [default: one per CPU that this shell may use, or one per slot of the hosts]' -r
complete -c rmpiexec -s x -d 'Set NAME for the ranks of this program; without a value, pass NAME on as it is here' -r
complete -c rmpiexec -l env -d 'Set NAME for the ranks of this program' -r
complete -c rmpiexec -l genv -d 'Set NAME for the ranks of all programs' -r
complete -c rmpiexec -l wdir -l wd -d 'Start the ranks of this program in another folder' -r -f -a "(__fish_complete_directories)"
complete -c rmpiexec -l output -d 'Write what each rank writes into files of this folder, rank.N.out and rank.N.err, and not to the terminal, where only rmpiexec\'s own words appear; the folder is made if there is none, files of these names are emptied' -r -f -a "(__fish_complete_directories)"
complete -c rmpiexec -s s -l stdin -d 'Who reads standard input; for all it flows as fast as the slowest takes it [default: rank 0]' -r
complete -c rmpiexec -l stats -d 'At the end, tell what each rank sent, how long it waited and who sent to whom: on standard error, or into FILE, as JSON if its name ends in .json' -r -F
complete -c rmpiexec -l stats-plot -d 'Draw who sent how much to whom, and how long each rank waited, into FILE (SVG)' -r -F
complete -c rmpiexec -l timeout -d 'End the job after so many seconds, with exit code 124' -r
complete -c rmpiexec -l gdb -d 'Start gdb with these ranks, which wait for it at their first instruction; it takes standard input, and the job goes on when it is left' -r
complete -c rmpiexec -l bind-to -d 'CPUs that each rank is bound to [default: an even share of the cores; where ranks outnumber cores nobody is bound and neighbours prefer the same CPU]' -r -f -a "none\t'the CPU mask is left alone'
core\t'one core for each rank'
hwthread\t'one hardware thread for each rank'
numa\t'all CPUs of a NUMA node for each rank'
socket\t'all CPUs of a socket for each rank'"
complete -c rmpiexec -l map-by -d 'Where the next rank goes [default: slot, ranks in order, a host after the other, and spread evenly over its cores]; node is the next host, ppr:N:node as --ranks-per-node N. More ranks than slots are allowed, unless :NOOVERSUBSCRIBE stands behind it' -r -f -a "slot\t'ranks in order, spread evenly over all cores'
core\t'each rank on the next core, without a gap'
numa\t'each rank on the next NUMA node'
socket\t'each rank on the next socket'
node\t'each rank on the next host, and there as slot'"
complete -c rmpiexec -s H -l host -l hosts -d 'Start ranks on these hosts, for example a:2,b:* or n[01-16]:4; a name alone is one slot, :* all cores of the host. With --hostfile: on these hosts of the file' -r -f -a "(__fish_print_hostnames)"
complete -c rmpiexec -s f -l hostfile -l machinefile -l machine -d 'Start ranks on the hosts of this file, one on each line, as MPICH (name:4) or Open MPI (name slots=4) write it; a name alone is all its cores' -r -F
complete -c rmpiexec -s N -l ranks-per-node -l ppn -l npernode -l perhost -d 'Put so many ranks on each host before the next one [default: as many as it has slots]' -r
complete -c rmpiexec -l rm -l rmk -d 'Take hosts and slots from this batch system [default: from the one whose job this is, if no --hostfile is given]' -r -f -a "none\t'none: hosts are those of --host and --hostfile'
slurm\t'Slurm'
pbs\t'PBS, Torque'
lsf\t'LSF'
sge\t'Grid Engine'
cobalt\t'Cobalt'
flux\t'Flux'"
complete -c rmpiexec -l launcher -l launcher-exec -d 'Reach other hosts with this command in place of ssh' -r
complete -c rmpiexec -l prefix -d 'Where rmpi is installed on the other hosts [default: where it is here]' -r -f -a "(__fish_complete_directories)"
complete -c rmpiexec -l heartbeat -d 'Seconds between two words of another host that it is there, and seconds without one after which it is given up [default: 1,20]' -r
complete -c rmpiexec -l topology -d 'With --dry-run: as if the machine were this one, for example "socket:2 numa:1 core:8 pu:2 mask:0-15"' -r
complete -c rmpiexec -s l -l tag-output -l prepend-rank -l label -d 'Begin each line of output with the rank that wrote it'
complete -c rmpiexec -l keep-going -d 'Let the others go on when a rank fails; the first failure is repeated at the end and gives the exit code'
complete -c rmpiexec -l report -d 'Say which CPUs each rank gets, and at the end how long each phase of the start took'
complete -c rmpiexec -l stats-calls -d 'Also measure how long each call of MPI takes, and tell which calls took most; some 50 ns more for each call'
complete -c rmpiexec -l report-bindings -d 'Say which CPUs each rank gets'
complete -c rmpiexec -l dry-run -d 'Print which rank would go where, and start nothing'
complete -c rmpiexec -l genvall -d 'Accepted for compatibility: the environment is always passed on'
complete -c rmpiexec -l oversubscribe -d 'Accepted for compatibility: more ranks than CPUs are always allowed'
complete -c rmpiexec -l allow-run-as-root -d 'Accepted for compatibility: running as root is always allowed'
complete -c rmpiexec -s q -l quiet -d 'Say nothing about ranks that end with a bad code after MPI_Finalize, which have said why themselves'
complete -c rmpiexec -s v -l verbose -d 'Say what is started where'
complete -c rmpiexec -s h -l help -d 'Print help (see more with \'--help\')'
complete -c rmpiexec -s V -l version -d 'Print version'
