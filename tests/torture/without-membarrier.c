/* SPDX-License-Identifier: MIT */
/*
 * Runs a program, and all that it starts, where membarrier() is refused: daemon and clients then have only their own
 * fences to go by.
 *
 *     without-membarrier PROGRAM [ARGUMENT ...]      exit status: the program's; 77 where filters are not allowed
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "basic/macro.h"

static int refuse_membarrier(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = ARRAY_SIZE(filter), .filter = filter};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
        return -errno;
    return syscall(SYS_membarrier, 0, 0, 0) < 0 && errno == EPERM ? 0 : -ENOTSUP;
}

int main(int argc, char *argv[])
{
    int r = argc > 1 ? refuse_membarrier() : -EINVAL;

    if (r < 0) {
        printf("skip: no filter for system calls: %s\n", strerror(-r));
        return 77;
    }
    (void)execv(argv[1], argv + 1);
    fprintf(stderr, "without-membarrier: %s: %s\n", argv[1], strerror(errno));
    return 1;
}
