// SPDX-License-Identifier: GPL-2.0
/*
 * For LD_PRELOAD: the main thread of rping closes the event channel while another
 * thread may be about to read from it. That thread then gets EBADF, and ends the
 * program with an error after everything went well. (Later versions than rdma-core
 * 56 end the thread first.) With this library the channel stays until the program ends.
 */
#include <rdma/rdma_cma.h>

void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	(void)channel;
}
