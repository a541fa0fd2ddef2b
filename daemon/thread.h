/* SPDX-License-Identifier: MIT */
/* What the threads of the daemon ask of the kernel's scheduler. */
#ifndef RECLAIMD_THREAD_H
#define RECLAIMD_THREAD_H

/* Called by the thread itself, first: its name, as ps and top show it. */
void thread_begin(const char *name);

/*
 * .. and for one whose delay is memory: it runs for tens of microseconds at a time, between naps as short, while the
 * clients that it works for keep every processor busy. Naps end when they are due, and it asks for short slices, for
 * which the kernel (6.12 and later) lets it run soon; older ones know no such wish and ignore it. No privilege is
 * needed, and it gets no more of the processor than others do.
 */
void thread_begin_prompt(const char *name);

#endif
