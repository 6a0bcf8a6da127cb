/* What the command line of the driver asked for. */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

#include <stdint.h>

struct options {
    const char *bootstrap;
    const char *topic;
    const char *acks;
    const char *codec;
    int partitions;
    int size;          /* bytes of a message's value */
    int64_t count;     /* stop after this many messages; 0 = no limit */
    double seconds;    /* stop feeding after this long; 0 = no limit */
    double rate;       /* messages a second with latencies; 0 = as fast as possible */
    double linger_ms;
    int batch_bytes;
    int idempotence;
    int handles;       /* producers, each with its own connection */
    int copy;          /* librdkafka copies each message, as it does for most applications */
    int feeders;       /* threads that share the handles */
    int passes;        /* how often a consumer reads the topic */
};

/* Exits with a message on standard error when an option is unknown or has no value. */
struct options parse_options(int argc, char **argv);

int run_produce(const struct options *options);
int run_latency(const struct options *options);
int run_consume(const struct options *options);
int run_mock(void);

#endif
