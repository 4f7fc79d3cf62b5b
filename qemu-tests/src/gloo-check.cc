// SPDX-License-Identifier: GPL-2.0
//
// gloo-check DEVICE FOLDER RANK: collective operations of gloo, the library of PyTorch, between two
// processes of the ranks 0 and 1, and a check of every value. They exchange their addresses in
// files of FOLDER.
//
// gloo sends all data as Writes with immediate data, and the addresses of its regions as Sends with
// immediate data. The immediate data says which buffer a message is for.

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include <gloo/allgather_ring.h>
#include <gloo/allreduce_ring.h>
#include <gloo/broadcast_one_to_all.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>

using Values = std::vector<uint32_t>;
using Context = std::shared_ptr<gloo::rendezvous::Context>;

static uint64_t checked;

// Values that tell process, round and place.
static Values values(uint32_t process, uint32_t round, size_t count)
{
	Values all(count);

	for (size_t i = 0; i < count; i++)
		all[i] = (2 * (round * 1000003 + i) + process) * 2654435761u;
	return all;
}

static void check(const std::string &what, const Values &got, const Values &want)
{
	for (size_t i = 0; i < want.size(); i++) {
		if (got[i] == want[i])
			continue;
		std::cout << what << " of " << want.size() << " values: " << got[i] << " at " << i
			  << " in place of " << want[i] << std::endl;
		std::quick_exit(1);
	}
	checked += want.size();
}

// The operations, with buffers for COUNT values.
struct Operations {
	size_t count;
	Values sum, first, second, own, all;
	gloo::AllreduceRing<uint32_t> reduce;
	gloo::BroadcastOneToAll<uint32_t> from_0, from_1;
	gloo::AllgatherRing<uint32_t> gather;

	Operations(const Context &context, size_t count)
		: count(count), sum(count), first(count), second(count), own(count), all(2 * count),
		  reduce(context, { sum.data() }, count),
		  from_0(context, { first.data() }, count, 0),
		  from_1(context, { second.data() }, count, 1),
		  gather(context, { own.data() }, all.data(), count)
	{
	}

	// Runs them, and checks what comes out at the process RANK.
	void run(int rank, uint32_t round)
	{
		Values of_0 = values(0, round, count), of_1 = values(1, round, count), want(of_0);

		sum = own = rank ? of_1 : of_0;
		(rank ? second : first) = own;

		reduce.run();
		for (size_t i = 0; i < count; i++)
			want[i] += of_1[i];
		check("sum", sum, want);

		from_0.run();
		check("broadcast of process 0", first, of_0);
		from_1.run();
		check("broadcast of process 1", second, of_1);

		gather.run();
		want = of_0;
		want.insert(want.end(), of_1.begin(), of_1.end());
		check("collection", all, want);
	}
};

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	int rank = atoi(argv[3]);
	// Index 1 is the address of the interface.
	auto device = gloo::transport::ibverbs::CreateDevice({ argv[1], 1, 1 });
	gloo::rendezvous::FileStore store(argv[2]);
	auto context = std::make_shared<gloo::rendezvous::Context>(rank, 2);
	std::list<Operations> operations;

	context->setTimeout(std::chrono::minutes(2));
	context->connectFullMesh(store, device);
	for (size_t count : { 1, 1000, 100003 }) {
		operations.emplace_back(context, count);
		for (uint32_t round = 0; round < 5; round++)
			operations.back().run(rank, round);
	}

	// The end of the other process flushes what is posted here. In this mode, gloo's thread
	// does not take that for an error.
	context->getPair(!rank)->setSync(true, true);
	store.set("done-" + std::to_string(rank), {});
	store.wait({ "done-0", "done-1" }, context->getTimeout());
	std::cout << checked << " values are right" << std::endl;
	// The operations do not wait for the completions of all that they have sent, and gloo
	// refuses to destroy the buffers before.
	std::quick_exit(0);
}
