// SPDX-License-Identifier: MIT OR Apache-2.0
// `without_vm_readv PROGRAM [ARGUMENTS]`: runs a program whose system calls process_vm_readv and process_vm_writev are
// refused, as by the filters of many containers.
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof code / sizeof *code, code};
    if (argc < 2) {
        fprintf(stderr, "usage: without_vm_readv PROGRAM [ARGUMENTS]\n");
        return 2;
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) {
        perror("without_vm_readv: the filter was not taken");
        return 3;
    }
    errno = 0;
    if (syscall(SYS_process_vm_readv, getpid(), NULL, 0, NULL, 0, 0) != -1 || errno != EPERM) {
        fprintf(stderr, "without_vm_readv: the filter does not work\n");
        return 3;
    }
    execvp(argv[1], argv + 1);
    perror(argv[1]);
    return 127;
}
