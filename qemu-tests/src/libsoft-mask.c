// SPDX-License-Identifier: GPL-2.0
/*
 * For LD_PRELOAD into User Mode Linux with several CPUs, which masks the signal of
 * interrupts between CPUs, SIGRTMIN, whenever it disables interrupts. That is two
 * system calls for each pair of disable and enable, where hardware needs two
 * instructions: 85 calls for a message of 64 bytes and its answer. They were 45 % of
 * the CPU time of a stream.
 *
 * With this library the mask is a flag of the thread. A signal that comes while it is
 * set is queued, and handled when it is cleared. A CPU is one thread.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define QUEUE 256
#define barrier() __asm__ volatile("" ::: "memory")
#define PER_CPU static __thread __attribute__((tls_model("initial-exec")))

/* The signal is masked by this library. */
PER_CPU volatile bool masked;
/* The signal is masked by the host's kernel, too. */
PER_CPU volatile bool sealed;
PER_CPU volatile unsigned int first, count;
PER_CPU siginfo_t queue[QUEUE];

/* The handler of the signal. */
static void (*handler)(int, siginfo_t *, void *);
/* The handlers of the other interrupts. */
static void (*others[SIGSYS + 1])(int, siginfo_t *, void *);

/* The bit of a signal in the kernel's set, which is shorter than glibc's. */
static unsigned long bit(int sig)
{
	return 1UL << (sig - 1);
}

static int host_mask(int how, unsigned long set, unsigned long *old)
{
	return syscall(SYS_rt_sigprocmask, how, &set, old, sizeof(set));
}

static void give_up(void)
{
	fputs("libsoft-mask: too many interrupts between CPUs\n", stderr);
	abort();
}

static void append(const siginfo_t *info)
{
	if (count == QUEUE)
		give_up();
	queue[(first + count) % QUEUE] = *info;
	count++;
}

static siginfo_t take(void)
{
	siginfo_t info = queue[first % QUEUE];

	first++;
	count--;
	return info;
}

/* As the host's kernel calls a handler: all signals are masked, until the handler unmasks one. */
static void handle(siginfo_t *info, void *context)
{
	sealed = true;
	barrier();
	handler(SIGRTMIN, info, context);
	barrier();
	sealed = false;
	masked = false;
}

static void handle_queued(void)
{
	while (count) {
		unsigned long old;

		host_mask(SIG_BLOCK, ~0UL, &old);
		if (count) {
			siginfo_t info = take();

			handle(&info, NULL);
		}
		host_mask(SIG_SETMASK, old, NULL);
	}
}

static void on_signal(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	if (masked) {
		append(info);
		return;
	}
	handle(info, context);
	handle_queued();
}

/* The host's kernel restores its mask after a handler, so this does, too. */
static void on_other(int sig, siginfo_t *info, void *context)
{
	bool was_masked = masked, was_sealed = sealed;

	others[sig](sig, info, context);
	barrier();
	if (was_masked)
		masked = true;
	if (was_sealed)
		sealed = true;
}

int sigaction(int sig, const struct sigaction *action, struct sigaction *old)
{
	static int (*next)(int, const struct sigaction *, struct sigaction *);
	bool other = sig == SIGALRM || sig == SIGIO || sig == SIGCHLD || sig == SIGWINCH;
	void (*before)(int, siginfo_t *, void *) = other ? others[sig] : NULL;
	struct sigaction ours;
	int ret;

	if (!next)
		next = dlsym(RTLD_NEXT, "sigaction");
	if (action && (action->sa_flags & SA_SIGINFO) && (other || sig == SIGRTMIN)) {
		ours = *action;
		if (other) {
			others[sig] = ours.sa_sigaction;
			ours.sa_sigaction = on_other;
		} else {
			handler = ours.sa_sigaction;
			ours.sa_sigaction = on_signal;
		}
		action = &ours;
	}
	ret = next(sig, action, old);
	if (old && old->sa_sigaction == on_other)
		old->sa_sigaction = before;
	return ret;
}

int sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
	unsigned long wanted = set ? *(const unsigned long *)set : 0;

	if (!set)
		how = SIG_BLOCK;
	if (how == SIG_SETMASK) {
		sealed = wanted & bit(SIGRTMIN);
	} else if (handler && wanted == bit(SIGRTMIN)) {
		masked = how == SIG_BLOCK;
		barrier();
		if (!masked) {
			if (sealed) {
				sealed = false;
				host_mask(how, wanted, NULL);
			}
			handle_queued();
		}
		return 0;
	} else if (handler && wanted == bit(SIGALRM)) {
		/*
		 * An idle CPU masks SIGALRM, checks that it has nothing to do, and waits for
		 * a file that becomes readable by both signals. So both must arrive there.
		 */
		wanted |= bit(SIGRTMIN);
		host_mask(how, wanted, NULL);
		while (how == SIG_BLOCK && count)
			if (pthread_sigqueue(pthread_self(), SIGRTMIN, take().si_value))
				give_up();
		return 0;
	}
	return host_mask(how, wanted, (unsigned long *)old);
}
