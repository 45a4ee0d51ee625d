/*
 * A worker as Horovod's are: real Gloo contexts that meet through musterd's HTTP. Built by
 * test_gloo.sh, not by CMake: Muster does not need Gloo.
 *
 * Its environment is that of Horovod's workers: HOROVOD_GLOO_RENDEZVOUS_ADDR and _PORT,
 * HOROVOD_HOSTNAME, HOROVOD_RANK, _SIZE, _LOCAL_RANK, ... For each line on stdin it takes part in
 * one round (the contexts global, local and cross, an allreduce in each) and prints
 *
 *     HOST:LOCAL_RANK RANK SIZE SUM LOCAL_SUM CROSS_SUM
 *
 * where a sum is that of rank + 1 over the context. From the second line on it asks rank_and_size
 * first, as Horovod does after a reset, and prints "removed" if it has no rank any more.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gloo/allreduce_ring.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

static std::string setting(const char *name)
{
    const char *value = std::getenv(name);
    if (value == nullptr) {
        throw std::invalid_argument(std::string(name) + " is not set");
    }
    return value;
}

struct Reply {
    int status;
    std::vector<char> body;
};

/* A request on a connection of its own. ADDR is HOST:PORT/PATH, and ":PORT" comes behind it. */
static Reply request(const std::string &method, const std::string &scope, const std::string &key,
                     const std::vector<char> &body)
{
    std::string url = setting("HOROVOD_GLOO_RENDEZVOUS_ADDR") + ":" +
                      setting("HOROVOD_GLOO_RENDEZVOUS_PORT") + "/" + scope + "/" + key;
    std::string authority = url.substr(0, url.find('/'));
    std::string host = authority.substr(0, authority.find(':'));
    struct sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(authority.substr(host.size() + 1))));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (inet_pton(AF_INET, host.c_str(), &to.sin_addr) != 1 ||
        connect(fd, reinterpret_cast<struct sockaddr *>(&to), sizeof to) != 0) {
        close(fd);
        throw std::runtime_error("cannot connect to " + authority);
    }
    std::string text = method + " " + url.substr(authority.size()) + " HTTP/1.1\r\nHost: " + host +
                       "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
                       std::string(body.begin(), body.end());
    for (size_t sent = 0; sent < text.size();) {
        ssize_t done = send(fd, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
        if (done <= 0) {
            break;
        }
        sent += static_cast<size_t>(done);
    }
    std::string reply;
    size_t end = std::string::npos;
    size_t length = 0;
    char buffer[65536];
    while (end == std::string::npos || reply.size() < end + 4 + length) {
        ssize_t got = recv(fd, buffer, sizeof buffer, 0);
        if (got <= 0) {
            close(fd);
            throw std::runtime_error(method + " " + url + ": the connection closed");
        }
        reply.append(buffer, static_cast<size_t>(got));
        end = reply.find("\r\n\r\n");
        size_t header = reply.find("\r\nContent-Length: "); /* in exactly this case */
        if (end != std::string::npos && header < end) {
            length = std::stoul(reply.substr(header + 18));
        }
    }
    close(fd);
    return {std::stoi(reply.substr(9)), {reply.begin() + static_cast<long>(end) + 4, reply.end()}};
}

/* Tries three times, as Horovod's store does. */
static Reply persist(const std::string &method, const std::string &scope, const std::string &key,
                     const std::vector<char> &body = {})
{
    for (int i = 0; i < 3; i++) {
        try {
            Reply reply = request(method, scope, key, body);
            if (reply.status == 200 || reply.status == 404) {
                return reply;
            }
            std::cerr << method << " " << scope << "/" << key << ": " << reply.status << "\n";
        } catch (const std::runtime_error &error) {
            std::cerr << error.what() << "\n";
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
    throw std::runtime_error("a request has failed three times");
}

class HttpStore : public gloo::rendezvous::Store
{
  public:
    explicit HttpStore(std::string scope) : scope_(std::move(scope))
    {
    }

    void set(const std::string &key, const std::vector<char> &data) override
    {
        persist("PUT", scope_, key, data);
    }

    std::vector<char> get(const std::string &key) override
    {
        return persist("GET", scope_, key).body;
    }

    void wait(const std::vector<std::string> &keys) override
    {
        wait(keys, std::chrono::seconds(60));
    }

    void wait(const std::vector<std::string> &keys,
              const std::chrono::milliseconds &timeout) override
    {
        auto limit = std::chrono::steady_clock::now() + timeout;
        for (const std::string &key : keys) {
            while (persist("GET", scope_, key).status == 404) {
                if (std::chrono::steady_clock::now() > limit) {
                    throw std::runtime_error("waited too long for " + scope_ + "/" + key);
                }
                std::this_thread::sleep_for(std::chrono::milliseconds(10));
            }
        }
    }

  private:
    std::string scope_;
};

struct Ranks {
    int rank, size, local_rank, local_size, cross_rank, cross_size;
};

/* Meets in one scope, and adds up rank + 1. */
static int sum_in(const std::string &scope, int rank, int size,
                  std::vector<std::unique_ptr<gloo::Algorithm>> &kept)
{
    auto device = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr("127.0.0.1"));
    HttpStore store(scope);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
    context->setTimeout(std::chrono::seconds(60));
    context->connectFullMesh(store, device);
    persist("DELETE", scope, std::to_string(rank));
    static int values[3 * 1000];
    static size_t used = 0;
    int *value = &values[used++];
    *value = rank + 1;
    if (size > 1) {
        kept.push_back(
            std::make_unique<gloo::AllreduceRing<int>>(context, std::vector<int *>{value}, 1));
        kept.back()->run();
    }
    return *value;
}

static bool ask(const std::string &host, Ranks &ranks)
{
    Reply reply = persist("GET", "rank_and_size", host + ":" + std::to_string(ranks.local_rank));
    std::string text(reply.body.begin(), reply.body.end());
    if (std::sscanf(text.c_str(), "%d,%d,%d,%d,%d,%d", &ranks.rank, &ranks.size, &ranks.local_rank,
                    &ranks.local_size, &ranks.cross_rank, &ranks.cross_size) != 6) {
        throw std::runtime_error("rank_and_size: \"" + text + "\"");
    }
    return ranks.rank >= 0;
}

static void work()
{
    std::string host = setting("HOROVOD_HOSTNAME");
    Ranks ranks = {
        std::stoi(setting("HOROVOD_RANK")),       std::stoi(setting("HOROVOD_SIZE")),
        std::stoi(setting("HOROVOD_LOCAL_RANK")), std::stoi(setting("HOROVOD_LOCAL_SIZE")),
        std::stoi(setting("HOROVOD_CROSS_RANK")), std::stoi(setting("HOROVOD_CROSS_SIZE"))};
    std::string line;
    std::vector<std::unique_ptr<gloo::Algorithm>> kept; /* a peer may still be in its last call */
    for (int round = 0; std::getline(std::cin, line); round++) {
        if (round > 0 && !ask(host, ranks)) {
            std::cout << "removed" << std::endl;
            continue;
        }
        int sum = sum_in("global", ranks.rank, ranks.size, kept);
        int local = sum_in("local_" + host, ranks.local_rank, ranks.local_size, kept);
        int cross = sum_in("cross_" + std::to_string(ranks.local_rank), ranks.cross_rank,
                           ranks.cross_size, kept);
        std::cout << host << ":" << ranks.local_rank << " " << ranks.rank << " " << ranks.size
                  << " " << sum << " " << local << " " << cross << std::endl;
    }
}

int main()
{
    try {
        work();
    } catch (const std::exception &error) {
        std::cerr << "gloo_worker: " << error.what() << "\n";
        return 1;
    }
    std::cout.flush();
    std::_Exit(0); /* Gloo's destructors may wait for peers that have gone */
}
