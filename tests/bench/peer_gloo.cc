/*
 * The measurement of `muster bench allreduce --type float32 --op sum --transport tcp`, with Gloo
 * (in place, because it has no other way). Built by tests/bench/peers, not by CMake: Muster does
 * not need Gloo. Each rank is a process; the ranks find each other through files in a shared
 * folder.
 *
 *     peer_gloo ALGORITHM BYTES ITERATIONS LIMIT_S RANK RANKS ADDRESS FOLDER
 *
 * BYTES may be @LIST, as `muster bench step --list` prints it: then a call is an allreduce for each
 * tensor, one after another. Rank 0 prints one line of JSON. ADDRESS is an IP address, or
 * "verbs:DEVICE:GID" for an RDMA device and the index of its address.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier_all_to_all.h>
#include <gloo/broadcast_one_to_all.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>
#include <gloo/transport/tcp/device.h>

#include "tests/bench/peer.h"

using Context = std::shared_ptr<gloo::rendezvous::Context>;

static std::shared_ptr<gloo::transport::Device> open_device(const char *address)
{
    char name[65];
    int gid;
    if (std::sscanf(address, "verbs:%64[^:]:%d", name, &gid) == 2) {
        return gloo::transport::ibverbs::CreateDevice({name, 1, gid});
    }
    return gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr(address));
}

static Context connect(int rank, int ranks, const char *address, const char *folder)
{
    auto device = open_device(address);
    gloo::rendezvous::FileStore store(folder);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
    context->connectFullMesh(store, device);
    return context;
}

/* Over ibverbs a buffer must not be freed before its last send is complete, and not every algorithm
 * waits for that. So all algorithms stay until the process ends, without destructors. */
template <class Algorithm, class... Arguments> static Algorithm &retain(Arguments &&...arguments)
{
    static std::vector<std::unique_ptr<Algorithm>> algorithms;
    algorithms.push_back(std::make_unique<Algorithm>(std::forward<Arguments>(arguments)...));
    return *algorithms.back();
}

/* One allreduce for each tensor of a list, in the order of the list; of one buffer, if there is no
 * list. */
class Step
{
  public:
    void add(gloo::Algorithm &algorithm)
    {
        algorithms.push_back(&algorithm);
    }
    void run()
    {
        for (gloo::Algorithm *algorithm : algorithms) {
            algorithm->run();
        }
    }

  private:
    std::vector<gloo::Algorithm *> algorithms;
};

static gloo::Algorithm &choose(const char *name, const Context &context, float *data, int count)
{
    const std::vector<float *> pointers = {data};
    if (std::strcmp(name, "ring_chunked") == 0) {
        return retain<gloo::AllreduceRingChunked<float>>(context, pointers, count);
    }
    if (std::strcmp(name, "halving_doubling") == 0) {
        return retain<gloo::AllreduceHalvingDoubling<float>>(context, pointers, count);
    }
    throw std::invalid_argument(std::string("no algorithm ") + name);
}

/* Uses the old interface, because the buffers of the new one do not work over ibverbs. */
static void maximum(const Context &context, double *values, size_t count)
{
    const std::vector<double *> pointers = {values};
    retain<gloo::AllreduceRingChunked<double>>(context, pointers, static_cast<int>(count),
                                               gloo::ReductionFunction<double>::max)
        .run();
}

/* All ranks use the number of iterations that rank 0 has found to fit. */
static int agree(const Context &context, int iterations)
{
    const std::vector<int *> pointers = {&iterations};
    retain<gloo::BroadcastOneToAll<int>>(context, pointers, 1).run();
    return iterations;
}

static int warm_up(const Context &context, Step &step, int wanted, double limit_s)
{
    double start_us = 0;
    for (int i = 0; i < PEER_WARM_UP; i++) {
        if (i == 1) {
            start_us = peer_now_us();
        }
        step.run();
    }
    double warm_us = (peer_now_us() - start_us) / (PEER_WARM_UP - 1);
    return agree(context, peer_iterations(wanted, warm_us, limit_s));
}

/* A rank in a call of Gloo must not see a connection end: each rank writes into the folder that it
 * is done, and ends when all have done so. */
[[noreturn]] static void leave(int rank, int ranks, const char *folder)
{
    gloo::rendezvous::FileStore store(folder);
    std::vector<std::string> all;
    for (int i = 0; i < ranks; i++) {
        all.push_back("done" + std::to_string(i));
    }
    store.set(all[static_cast<size_t>(rank)], {'1'});
    store.wait(all);
    std::_Exit(EXIT_SUCCESS);
}

[[noreturn]] static void run(char **argv)
{
    int rank = std::stoi(argv[5]);
    Context context = connect(rank, std::stoi(argv[6]), argv[7], argv[8]);
    std::vector<size_t> counts(PEER_TENSORS_MAX);
    counts.resize(peer_read_counts(argv[2], counts.data()));
    std::vector<float> data(std::accumulate(counts.begin(), counts.end(), size_t{0}));
    Step step;
    float *tensor = data.data();
    for (size_t count : counts) {
        step.add(choose(argv[1], context, tensor, static_cast<int>(count)));
        tensor += count;
    }
    int iterations = warm_up(context, step, std::stoi(argv[3]), std::stod(argv[4]));
    std::vector<double> times_us(static_cast<size_t>(iterations));
    auto &barrier = retain<gloo::BarrierAllToAll>(context);
    barrier.run();
    for (double &time_us : times_us) {
        double start_us = peer_now_us();
        step.run();
        time_us = peer_now_us() - start_us;
    }
    double memory = peer_memory_bytes(static_cast<double>(data.size() * sizeof(float)));
    maximum(context, &memory, 1);
    maximum(context, times_us.data(), times_us.size());
    if (rank == 0) {
        peer_print(times_us.data(), iterations, memory);
    }
    leave(context->rank, context->size, argv[8]);
}

int main(int argc, char **argv)
{
    if (argc != 9) {
        (void)std::fprintf(stderr,
                           "usage: peer_gloo ALGORITHM BYTES ITERATIONS LIMIT_S RANK RANKS "
                           "ADDRESS FOLDER\n");
        return 2;
    }
    try {
        run(argv);
    } catch (const std::exception &error) {
        (void)std::fprintf(stderr, "peer_gloo: rank %s: %s\n", argv[5], error.what());
        return 1;
    }
}
