/* A rank in a process of its own. */
#include "tests/conformance/rig_child.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { GENERATION = 10 };

static void run_child(const struct rig_transport *transport, rig_child_function function, int in,
                      int out)
{
    struct rig rig;
    rig_init(&rig, transport, 1);
    if (write(out, &rig.peers[0], sizeof rig.peers[0]) != (ssize_t)sizeof rig.peers[0] ||
        read(in, &rig.peers[1], sizeof rig.peers[1]) != (ssize_t)sizeof rig.peers[1]) {
        _exit(1);
    }
    struct muster_peer peers[2] = {rig.peers[1], rig.peers[0]};
    memcpy(rig.peers, peers, sizeof peers);
    rig.count = 2;
    rig.generation = GENERATION;
    rig_begin_one(&rig, 0);
    function(&rig);
    _exit(0);
}

struct rig_child rig_child_start(const struct rig_transport *transport, rig_child_function function)
{
    int to[2];
    int from[2];
    assert_int_equal(pipe(to), 0);
    assert_int_equal(pipe(from), 0);
    pid_t pid = fork();
    if (pid == 0) {
        run_child(transport, function, to[0], from[1]);
    }
    assert_true(pid > 0);
    close(to[0]);
    close(from[1]);
    return (struct rig_child){.pid = pid, .to = to[1], .from = from[0]};
}

void rig_child_link(const struct rig_child *child, struct rig *rig,
                    const struct rig_transport *transport)
{
    rig_init(rig, transport, 1);
    assert_int_equal(read(child->from, &rig->peers[1], sizeof rig->peers[1]), sizeof rig->peers[1]);
    assert_int_equal(write(child->to, &rig->peers[0], sizeof rig->peers[0]), sizeof rig->peers[0]);
    rig->count = 2;
    rig->generation = GENERATION;
    rig_begin_one(rig, 0);
}

void rig_child_finish(const struct rig_child *child, struct rig *rig)
{
    (void)kill(child->pid, SIGKILL);
    assert_int_equal(waitpid(child->pid, NULL, 0), child->pid);
    close(child->to);
    close(child->from);
    rig->count = 1;
    rig_finish(rig);
}
