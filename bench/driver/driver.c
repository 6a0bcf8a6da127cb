/* The native load driver of the benchmarks.
 *
 *   driver produce --bootstrap HOST:PORT --topic NAME --partitions N --size BYTES [--count N] [--seconds S] ...
 *   driver produce ... --rate N      a fixed rate, with latencies from delivery reports
 *   driver consume --bootstrap HOST:PORT --topic NAME --partitions N [--passes N]
 *   driver mock                      librdkafka's mock cluster until standard input closes
 *
 * Each load prints one line of JSON. Exit status 0 means that every message was accounted for.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "options.h"

static int is(const char *given, const char *name) {
    return strcmp(given, name) == 0;
}

static void set(struct options *options, const char *name, const char *value) {
    if (is(name, "--bootstrap")) {
        options->bootstrap = value;
    } else if (is(name, "--topic")) {
        options->topic = value;
    } else if (is(name, "--acks")) {
        options->acks = value;
    } else if (is(name, "--codec")) {
        options->codec = value;
    } else if (is(name, "--partitions")) {
        options->partitions = atoi(value);
    } else if (is(name, "--size")) {
        options->size = atoi(value);
    } else if (is(name, "--count")) {
        options->count = atoll(value);
    } else if (is(name, "--seconds")) {
        options->seconds = atof(value);
    } else if (is(name, "--rate")) {
        options->rate = atof(value);
    } else if (is(name, "--linger-ms")) {
        options->linger_ms = atof(value);
    } else if (is(name, "--batch-bytes")) {
        options->batch_bytes = atoi(value);
    } else if (is(name, "--idempotence")) {
        options->idempotence = atoi(value);
    } else if (is(name, "--handles")) {
        options->handles = atoi(value);
    } else if (is(name, "--copy")) {
        options->copy = atoi(value);
    } else if (is(name, "--feeders")) {
        options->feeders = atoi(value);
    } else if (is(name, "--passes")) {
        options->passes = atoi(value);
    } else {
        fail(name, "no such option");
    }
}

static void check(const struct options *options, const char *mode) {
    if (options->bootstrap == NULL || options->topic == NULL) {
        fail(mode, "--bootstrap and --topic are needed");
    }
    if (options->partitions < 1 || options->size < 1 || options->handles < 1 || options->feeders < 1 ||
        options->passes < 1) {
        fail(mode, "--partitions, --size, --handles, --feeders and --passes must be at least 1");
    }
    if (is(mode, "produce") && options->count <= 0 && options->seconds <= 0) {
        fail(mode, "give --count or --seconds");
    }
}

struct options parse_options(int argc, char **argv) {
    struct options options = {
        .acks = "all",
        .codec = "none",
        .partitions = 1,
        .size = 100,
        .linger_ms = 5,
        .batch_bytes = 1000000,
        .handles = 1,
        .feeders = 1,
        .passes = 1,
    };
    for (int i = 2; i < argc; i += 2) {
        if (i + 1 == argc) {
            fail(argv[i], "needs a value");
        }
        set(&options, argv[i], argv[i + 1]);
    }
    check(&options, argv[1]);
    return options;
}

int main(int argc, char **argv) {
    if (argc == 2 && is(argv[1], "mock")) {
        return run_mock();
    }
    if (argc < 2 || !(is(argv[1], "produce") || is(argv[1], "consume"))) {
        fprintf(stderr, "usage: driver produce|consume|mock [--option value ...]\n");
        return 2;
    }
    struct options options = parse_options(argc, argv);
    if (is(argv[1], "consume")) {
        return run_consume(&options);
    }
    return options.rate > 0 ? run_latency(&options) : run_produce(&options);
}
