/* muster bench --shape: hosts as network namespaces with shaped links, made by ip and tc. */
#include "worker/cli/bench/bench_network.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "worker/base/cleanup.h"
#include "worker/base/log.h"

enum {
    BATCH_SIZE = 256 * MUSTER_BENCH_HOSTS_MAX, /* of one command's input */
    EXIT_NO_COMMAND = 127,
    QUEUE_MS = 50, /* the longest delay in the queue of a link before it drops packets */
};

/* Running ip and tc --------------------------------------------------------------------------- */

/* The input of one command. */
struct ip_batch {
    char text[BATCH_SIZE];
    size_t size;
};

static void add(struct ip_batch *batch, const char *format, ...) MUSTER_PRINTF(2, 3);

static void add(struct ip_batch *batch, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    size_t room = sizeof batch->text - batch->size;
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start() has */
    int size = vsnprintf(batch->text + batch->size, room, format, arguments);
    va_end(arguments);
    batch->size += size > 0 && (size_t)size < room ? (size_t)size : 0;
}

/* Runs in the child and does not return. */
static void run_command(const char *command, int namespace_fd, int input, int errors)
{
    if (setns(namespace_fd, CLONE_NEWNET) != 0 || dup2(input, STDIN_FILENO) < 0 ||
        dup2(errors, STDERR_FILENO) < 0) {
        _exit(EXIT_FAILURE);
    }
    (void)execlp(command, command, "-batch", "-", (char *)NULL);
    _exit(EXIT_NO_COMMAND);
}

static muster_status report_failure(const char *command, int how, int errors)
{
    char text[256] = "";
    if (WIFEXITED(how) && WEXITSTATUS(how) == EXIT_NO_COMMAND) {
        return muster_error_set(
            MUSTER_FATAL, "--shape: there is no command %s: apt-get install iproute2", command);
    }
    if (pread(errors, text, sizeof text - 1, 0) < 0) {
        text[0] = '\0';
    }
    text[strcspn(text, "\n")] = '\0';
    return muster_error_set(MUSTER_FATAL, "--shape: %s: %s", command,
                            text[0] != '\0' ? text : "it failed without an error message");
}

/* Runs `ip -batch` or `tc -batch` in a namespace. */
static muster_status run_batch(const char *command, int namespace_fd, const struct ip_batch *batch)
{
    AUTO_CLOSE int input = memfd_create("batch", MFD_CLOEXEC);
    AUTO_CLOSE int errors = memfd_create("complaints", MFD_CLOEXEC);
    if (input < 0 || errors < 0 ||
        pwrite(input, batch->text, batch->size, 0) != (ssize_t)batch->size) {
        return muster_error_errno(MUSTER_FATAL, "--shape: input for %s", command);
    }
    pid_t pid = fork();
    if (pid < 0) {
        return muster_error_errno(MUSTER_FATAL, "--shape: no process for %s", command);
    }
    if (pid == 0) {
        run_command(command, namespace_fd, input, errors);
    }
    int how = 0;
    while (waitpid(pid, &how, 0) < 0 && errno == EINTR) {
    }
    return how == 0 ? MUSTER_OK : report_failure(command, how, errors);
}

/* In the thread's network namespace. */
static bool set_sysctl(const char *path, const char *value)
{
    FILE *setting = fopen(path, "we");
    if (setting == NULL) {
        return false;
    }
    (void)fputs(value, setting);
    return fclose(setting) == 0; /* fclose() writes it, so the error is seen here */
}

/* Making --------------------------------------------------------------------------------------- */

muster_status muster_bench_network_check_rate(const char *rate)
{
    static const char *const units[] = {"bit", "kbit", "mbit", "gbit"};
    size_t digits = strspn(rate, "0123456789");
    bool good = digits > 0 && digits <= 6 && strspn(rate, "0") < digits;
    bool known = false;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        known |= strcmp(rate + digits, units[i]) == 0;
    }
    return good && known ? MUSTER_OK
                         : muster_error_set(MUSTER_INVALID,
                                            "--shape: \"%.32s\" is not a rate such as 1gbit or "
                                            "500mbit",
                                            rate);
}

/* Moves this thread into a new namespace. The children inherit its descriptor, and ip is given its
 * number. */
static muster_status create_namespace(int *ret_namespace)
{
    if (unshare(CLONE_NEWNET) != 0) {
        return errno == EPERM ? muster_error_set(MUSTER_FATAL,
                                                 "--shape: only root may make network namespaces: "
                                                 "run the command with sudo")
                              : muster_error_errno(MUSTER_FATAL, "--shape: network namespace");
    }
    /* NOLINTNEXTLINE(android-cloexec-open): see above. */
    int namespace_fd = open("/proc/thread-self/ns/net", O_RDONLY);
    if (namespace_fd < 0) {
        return muster_error_errno(MUSTER_FATAL, "--shape: network namespace");
    }
    *ret_namespace = namespace_fd;
    return MUSTER_OK;
}

/* The cores that this process may use, in the kernel's format for masks: "3", "1,ffffffff". */
static void format_cores(char *ret_mask, size_t size)
{
    cpu_set_t cores;
    CPU_ZERO(&cores);
    (void)sched_getaffinity(0, sizeof cores, &cores);
    size_t used = 0;
    for (size_t word = CPU_SETSIZE / 32; word-- > 0;) {
        uint32_t bits = 0;
        for (size_t i = 0; i < 32; i++) {
            bits |= (uint32_t)(CPU_ISSET(word * 32 + i, &cores) != 0) << i;
        }
        if (used > 0 || bits != 0) {
            used += (size_t)snprintf(ret_mask + used, size - used, used > 0 ? ",%08x" : "%x", bits);
        }
    }
}

/* Steers each flow to one core, as a network card steers it to one queue; for devices that are made
 * later in this thread's namespace. Otherwise a veth processes each packet on the core that happens
 * to forward it, packets of one flow arrive out of order, and TCP takes that for loss. */
static bool steer_flows(void)
{
    char mask[CPU_SETSIZE / 32 * 9] = "";
    format_cores(mask, sizeof mask);
    return set_sysctl("/proc/sys/net/core/rps_default_mask", mask);
}

static muster_status create_namespaces(struct muster_bench_network *network)
{
    AUTO_CLOSE int home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    if (home < 0) {
        return muster_error_errno(MUSTER_FATAL, "--shape: /proc/thread-self/ns/net");
    }
    muster_status status = create_namespace(&network->bridge);
    bool steered = status == MUSTER_OK && steer_flows();
    for (uint32_t i = 0; status == MUSTER_OK && i < network->hosts; i++) {
        status = create_namespace(&network->namespaces[i]);
        steered = status == MUSTER_OK && steer_flows() && steered;
    }
    if (network->bridge >= 0 && setns(home, CLONE_NEWNET) != 0 && status == MUSTER_OK) {
        return muster_error_errno(MUSTER_FATAL, "--shape: returning to the own network namespace");
    }
    if (status == MUSTER_OK && !steered) {
        muster_log(MUSTER_LOG_WARN,
                   "--shape: /proc/sys/net/core/rps_default_mask cannot be set on this kernel: "
                   "packets of a connection may arrive out of order, which TCP takes for loss");
    }
    return status;
}

static void shape(struct ip_batch *batch, const char *device, const char *rate)
{
    add(batch, "qdisc add dev %s root tbf rate %s burst %d latency %dms\n", device, rate,
        MUSTER_BENCH_BURST_BYTES, QUEUE_MS);
}

/* The bridge's end of each link shapes the traffic to the host. */
static muster_status set_up_bridge(const struct muster_bench_network *network, const char *rate)
{
    AUTO_FREE struct ip_batch *links = calloc(1, sizeof *links);
    AUTO_FREE struct ip_batch *rates = calloc(1, sizeof *rates);
    if (links == NULL || rates == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    add(links, "link add bridge type bridge\nlink set bridge up\n");
    for (uint32_t i = 0; i < network->hosts; i++) {
        char device[16];
        (void)snprintf(device, sizeof device, "host%u", i);
        add(links,
            "link add %s type veth peer name eth0 netns /proc/self/fd/%d\n"
            "link set %s master bridge up\n",
            device, network->namespaces[i], device);
        shape(rates, device, rate);
    }
    TRY(run_batch("ip", network->bridge, links));
    return run_batch("tc", network->bridge, rates);
}

/* 198.18.0.0/15 is reserved for benchmarks (RFC 2544). */
static void format_address(uint32_t host, char ret_address[MUSTER_BENCH_ADDRESS_SIZE])
{
    (void)snprintf(ret_address, MUSTER_BENCH_ADDRESS_SIZE, "198.18.0.%u", host % 255 + 1);
}

/* The host's end of a link shapes the traffic from the host. */
static muster_status set_up_host(const struct muster_bench_network *network, uint32_t host,
                                 const char *rate)
{
    AUTO_FREE struct ip_batch *batch = calloc(1, sizeof *batch);
    if (batch == NULL) {
        return muster_error_set(MUSTER_FATAL, "no memory");
    }
    char address[MUSTER_BENCH_ADDRESS_SIZE];
    format_address(host, address);
    add(batch, "link set lo up\naddress add %s/24 dev eth0\nlink set eth0 up\n", address);
    TRY(run_batch("ip", network->namespaces[host], batch));
    batch->size = 0;
    shape(batch, "eth0", rate);
    return run_batch("tc", network->namespaces[host], batch);
}

static muster_status set_up(struct muster_bench_network *network, const char *rate)
{
    TRY(create_namespaces(network));
    TRY(set_up_bridge(network, rate));
    for (uint32_t i = 0; i < network->hosts; i++) {
        TRY(set_up_host(network, i, rate));
    }
    return MUSTER_OK;
}

muster_status muster_bench_network_create(uint32_t hosts, const char *rate,
                                          struct muster_bench_network *ret_network)
{
    struct muster_bench_network network = {.hosts = hosts, .bridge = -1};
    for (uint32_t i = 0; i < MUSTER_BENCH_HOSTS_MAX; i++) {
        network.namespaces[i] = -1;
    }
    muster_status status = set_up(&network, rate);
    if (status != MUSTER_OK) {
        muster_bench_network_destroy(&network);
        return status;
    }
    *ret_network = network;
    return MUSTER_OK;
}

void muster_bench_network_destroy(struct muster_bench_network *network)
{
    for (uint32_t i = 0; i < network->hosts; i++) {
        if (network->namespaces[i] >= 0) {
            close(network->namespaces[i]);
        }
    }
    if (network->bridge >= 0) {
        close(network->bridge);
    }
    network->hosts = 0;
    network->bridge = -1;
}

/* Cubic is the default of Linux. BBR, which some machines use instead, estimates the rate of the
 * path and needs many round trips over a shaped link to find it again after each pause. A namespace
 * may use only algorithms that the machine allows to all processes; Reno is always among them. */
static void choose_congestion_control(void)
{
    static const char path[] = "/proc/sys/net/ipv4/tcp_congestion_control";
    if (!set_sysctl(path, "cubic")) {
        (void)set_sysctl(path, "reno"); /* on failure the default stays */
    }
}

muster_status muster_bench_network_enter(const struct muster_bench_network *network, uint32_t host,
                                         char ret_address[MUSTER_BENCH_ADDRESS_SIZE])
{
    if (setns(network->namespaces[host], CLONE_NEWNET) != 0) {
        return muster_error_errno(MUSTER_FATAL, "--shape: the network namespace of host %u", host);
    }
    choose_congestion_control();
    format_address(host, ret_address);
    return MUSTER_OK;
}
