# SPDX-License-Identifier: MIT OR Apache-2.0
complete -c rmpi-info -l peer -d 'With --net: for packets to this address or host' -r -f -a "(__fish_print_hostnames)"
complete -c rmpi-info -l search -d 'Show only the variables and events whose entries contain all these words; --vars, --pvars and --events restrict the search' -r
complete -c rmpi-info -l net -d 'Show the network: devices, ports, addresses, which of them ranks would use and why, and what is missing'
complete -c rmpi-info -l vars -d 'Show the variables, with the values that hold in this shell'
complete -c rmpi-info -l pvars -d 'Show the performance variables of MPI_T: what the library counts for tools'
complete -c rmpi-info -l events -d 'Show the events of MPI_T: what the library tells tools when it happens'
complete -c rmpi-info -l json -d 'Show variables and events as JSON; --vars, --pvars and --events restrict the output'
complete -c rmpi-info -s h -l help -d 'Print help'
complete -c rmpi-info -s V -l version -d 'Print version'
