/* SPDX-License-Identifier: MIT */
/* Sealed memfds; see segment.h. */
#include "segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "abi.h"
#include "basic/cleanup.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008u /* Linux 6.3 */
#endif

#define ADDRESS_ALIGNMENT (2ull << 20) /* room for huge pages */
#define ADDRESS_TRIES 64

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* The best descriptor this kernel gives: MFD_NOEXEC_SEAL is refused with EINVAL where it is not known. */
static int memfd_make(const char *name)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);

    if (fd < 0 && errno == EINVAL)
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return fd < 0 ? -errno : fd;
}

int segment_new(const char *name, uint64_t bytes, int *ret_fd)
{
    _cleanup_close_ int fd = memfd_make(name);

    if (fd < 0)
        return fd;
    if (fchmod(fd, 0600) < 0 || ftruncate(fd, (off_t)bytes) < 0 || fcntl(fd, F_ADD_SEALS, SEALS) < 0)
        return -errno;
    if ((fcntl(fd, F_GET_SEALS) & SEALS) != SEALS)
        return -EPERM;
    *ret_fd = steal_fd(&fd);
    return 0;
}

int segment_reopen_read_only(int fd, int *ret_fd)
{
    char path[64];
    int copy;

    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    copy = open(path, O_RDONLY | O_CLOEXEC);
    if (copy < 0)
        return -errno;
    *ret_fd = copy;
    return 0;
}

int segment_map(int fd, uint64_t bytes, void *at, bool writable, void **ret)
{
    int prot = writable ? PROT_READ | PROT_WRITE : PROT_READ;
    void *p = mmap(at, bytes, prot, MAP_SHARED | MAP_NORESERVE | (at ? MAP_FIXED_NOREPLACE : 0), fd, 0);

    if (p == MAP_FAILED)
        return -errno;
    if (at && p != at) { /* a kernel that takes MAP_FIXED_NOREPLACE for a hint */
        (void)munmap(p, bytes);
        return -EEXIST;
    }
    *ret = p;
    return 0;
}

void segment_unmap(void *address, uint64_t bytes)
{
    if (address)
        (void)munmap(address, bytes);
}

static int address_draw(uint64_t bytes, bool wide, void **ret)
{
    uint64_t start = wide ? ABI_WIDE_WINDOW_START : ABI_WINDOW_START,
             end = wide ? ABI_WIDE_WINDOW_END : ABI_WINDOW_END;
    uint64_t random;

    if (bytes > end - start)
        return -EFBIG;
    if (getrandom(&random, sizeof(random), 0) != sizeof(random))
        return -EIO;
    start += random % ((end - start - bytes) / ADDRESS_ALIGNMENT + 1) * ADDRESS_ALIGNMENT;
    *ret = (void *)(uintptr_t)start;
    return 0;
}

int segment_map_arena(int fd, uint64_t bytes, void **ret)
{
    int r = -EEXIST;

    /* large arenas, and those that found the small window full, go to the wide one */
    for (int i = 0; i < 2 * ADDRESS_TRIES && r == -EEXIST; i++) {
        void *at;

        r = address_draw(bytes, bytes > ABI_WINDOW_BYTES_MAX || i >= ADDRESS_TRIES, &at);
        if (r == 0)
            r = segment_map(fd, bytes, at, true, ret);
    }
    return r;
}

int segment_backed_bytes(int fd, uint64_t *ret)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return -errno;
    *ret = (uint64_t)st.st_blocks * 512;
    return 0;
}
