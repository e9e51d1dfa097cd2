// SPDX-License-Identifier: MIT OR Apache-2.0
// `without CALL PROGRAM [ARGUMENTS]`: runs a program that may not use a system call, as under the filters of many
// containers. CALL is process_vm_readv, which includes process_vm_writev, or memfd_create.
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct refused {
    const char *name;
    int first, second;
} CALLS[] = {
    {"process_vm_readv", SYS_process_vm_readv, SYS_process_vm_writev},
    {"memfd_create", SYS_memfd_create, SYS_memfd_create},
};

int main(int argc, char **argv)
{
    const struct refused *call = NULL;
    for (size_t i = 0; argc > 2 && i < sizeof CALLS / sizeof *CALLS; i++)
        if (!strcmp(argv[1], CALLS[i].name))
            call = &CALLS[i];
    if (!call) {
        fprintf(stderr, "usage: without process_vm_readv|memfd_create PROGRAM [ARGUMENTS]\n");
        return 2;
    }
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call->first, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call->second, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) {
        perror("without: the filter was not taken");
        return 3;
    }
    errno = 0;
    if (syscall(call->first, 0, 0, 0, 0, 0, 0) != -1 || errno != EPERM) {
        fprintf(stderr, "without: the filter does not work\n");
        return 3;
    }
    execvp(argv[2], argv + 2);
    perror(argv[2]);
    return 127;
}
