/* `muster bench step`: measures what a training step gives to the network. */
#ifndef MUSTER_WORKER_CLI_BENCH_STEP_STEP_H
#define MUSTER_WORKER_CLI_BENCH_STEP_STEP_H

/* argv[0] is "muster bench step". Returns the exit status of the process. */
int muster_bench_step(int argc, char **argv);

#endif
