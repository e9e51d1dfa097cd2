# SPDX-License-Identifier: MIT OR Apache-2.0
complete -c rmpi-queues -l graph -d 'Draw who waits for whom into a file (SVG)' -r -F
complete -c rmpi-queues -l all -d 'Leave nothing out: every rank and every message, however many they are'
complete -c rmpi-queues -l json -d 'Write for programs: one object with the verdict, what each rank waits for, and all queues'
complete -c rmpi-queues -s h -l help -d 'Print help'
complete -c rmpi-queues -s V -l version -d 'Print version'
