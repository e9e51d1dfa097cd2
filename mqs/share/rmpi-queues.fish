# SPDX-License-Identifier: MIT OR Apache-2.0
complete -c rmpi-queues -l graph -d 'Draw who waits for whom into a file (SVG)' -r -F
complete -c rmpi-queues -l library -d 'Ask this library for debuggers, if it does not lie where the ranks\' MPI says' -r -F
complete -c rmpi-queues -l debug-info -d 'Take the types of the ranks\' MPI from here, if its libraries were stripped (another MPI\'s; rmpi needs none)' -r -F
complete -c rmpi-queues -l all -d 'Leave nothing out: every rank and every message, however many they are'
complete -c rmpi-queues -l json -d 'Write for programs: one object with the verdict, what each rank waits for, and all queues'
complete -c rmpi-queues -s h -l help -d 'Print help'
complete -c rmpi-queues -s V -l version -d 'Print version'
