// SPDX-License-Identifier: GPL-2.0
/*
 * The gate in front of a region or window. Each access enters it, without a write to
 * memory that CPUs share. Closing it waits for the accesses under way, and for no grace
 * period.
 *
 * A user between enter and exit sees the gate unlocked. While it is locked, nobody is
 * inside. Enter and exit are for any context but hard interrupts, and for short times;
 * a CPU is inside of one gate and one deeper gate at most. Lock spins until the users
 * are out.
 *
 * Each of the kernel's means serves one side only. Reader-writer locks and counts write
 * to a line that all CPUs share. SRCU, percpu_ref, and RCU, on which Revocable of the
 * kernel crate rests, close after a grace period: dereg_mr, Local Invalidate and the end
 * of one-touch access would take milliseconds, and the latter two cannot sleep.
 *
 * It rests on one thread of execution at a time in softirq or with softirqs off for
 * each CPU, or, with CONFIG_PREEMPT_RT, on preemption being off. A kernel in which
 * local_bh_disable() does not keep softirqs away breaks it without an error of the
 * compiler; with CONFIG_PROVE_LOCKING it warns.
 */

#include <linux/bottom_half.h>
#include <linux/percpu.h>
#include <linux/preempt.h>
#include <linux/spinlock.h>

#include "rust_c.h"

/*
 * The gate. Who goes inside says so in a place of its CPU, and writes to the gate
 * only when the CPU is there for the first time. Who wants to lock the gate says so
 * in it, and waits for the CPUs that were faster; those that come later queue up
 * behind. Each CPU is inside of one gate at a time, because nothing that enters one
 * can come in between. Only the memory behind a gate may have another one inside.
 */
static DEFINE_PER_CPU(struct soft_gate *, gate_inside);

/* The same for gates that are entered inside of another one. */
static DEFINE_PER_CPU(struct soft_gate *, gate_deeper);

void soft_gate_init(struct soft_gate *gate)
{
	raw_spin_lock_init(&gate->lock);
	gate->locked = false;
	atomic_long_set(&gate->cpus, 0);
}

/*
 * In a softirq, and with interrupts off, as kernel consumers may post, no softirq can
 * come in between; in the latter case local_bh_enable() may not be called. Where
 * softirqs are threads they may be preempted inside.
 */
static __always_inline bool gate_stay(void)
{
	if (IS_ENABLED(CONFIG_PREEMPT_RT)) {
		preempt_disable();
		return true;
	}
	if (softirq_count() || irqs_disabled())
		return false;
	local_bh_disable();
	return true;
}

static __always_inline void gate_go(bool stayed)
{
	if (IS_ENABLED(CONFIG_PREEMPT_RT))
		preempt_enable();
	else if (stayed)
		local_bh_enable();
}

/* Several CPUs share a bit, where there are so many. */
static __always_inline long gate_bit(int cpu)
{
	return BIT(cpu % BITS_PER_LONG);
}

static __always_inline bool gate_go_in(struct soft_gate *gate,
				       struct soft_gate * __percpu *inside)
{
	bool stayed = gate_stay();
	long bit = gate_bit(smp_processor_id());

	WARN_ON_ONCE(IS_ENABLED(CONFIG_PROVE_LOCKING) &&
		     this_cpu_read(*inside));
	if (unlikely(!(atomic_long_read(&gate->cpus) & bit)))
		atomic_long_or(bit, &gate->cpus);
	__this_cpu_write(*inside, gate);
	/* As in gate_shut(): one of both sees the other. */
	smp_mb();
	/* Pairs with the release of soft_gate_unlock(). */
	if (unlikely(smp_load_acquire(&gate->locked))) {
		__this_cpu_write(*inside, NULL);
		raw_spin_lock(&gate->lock);
		__this_cpu_write(*inside, gate);
		raw_spin_unlock(&gate->lock);
	}
	return stayed;
}

static __always_inline void gate_go_out(bool stayed,
					struct soft_gate * __percpu *inside)
{
	/* Pairs with the acquire of gate_shut(). */
	smp_store_release(this_cpu_ptr(inside), NULL);
	gate_go(stayed);
}

static bool gate_shut(struct soft_gate *gate,
		      struct soft_gate * __percpu *inside)
{
	bool stayed = gate_stay();
	long cpus;
	int cpu;

	WARN_ON_ONCE(IS_ENABLED(CONFIG_PROVE_LOCKING) &&
		     this_cpu_read(*inside));
	raw_spin_lock(&gate->lock);
	WRITE_ONCE(gate->locked, true);
	/* As in gate_go_in(). */
	smp_mb();
	cpus = atomic_long_read(&gate->cpus);
	for_each_possible_cpu(cpu) {
		if (cpus & gate_bit(cpu))
			smp_cond_load_acquire(per_cpu_ptr(inside, cpu),
					      gate != VAL);
	}
	return stayed;
}

void soft_gate_unlock(struct soft_gate *gate, bool stayed)
{
	/* Pairs with the acquire of gate_go_in(). */
	smp_store_release(&gate->locked, false);
	raw_spin_unlock(&gate->lock);
	gate_go(stayed);
}

bool soft_gate_enter(struct soft_gate *gate)
{
	return gate_go_in(gate, &gate_inside);
}

void soft_gate_exit(bool stayed)
{
	gate_go_out(stayed, &gate_inside);
}

bool soft_gate_lock(struct soft_gate *gate)
{
	return gate_shut(gate, &gate_inside);
}

bool soft_gate_enter_deeper(struct soft_gate *gate)
{
	return gate_go_in(gate, &gate_deeper);
}

void soft_gate_exit_deeper(bool stayed)
{
	gate_go_out(stayed, &gate_deeper);
}

/* Who enters later sees what the caller has written before. */
void soft_gate_wait_deeper(struct soft_gate *gate)
{
	soft_gate_unlock(gate, gate_shut(gate, &gate_deeper));
}
