/* What every mode needs from librdkafka and from the operating system. */
#ifndef BENCH_CLIENT_H
#define BENCH_CLIENT_H

#include <librdkafka/rdkafka.h>
#include <stdint.h>

#include "options.h"

#define REQUEST_TIMEOUT_MS 30000

void fail(const char *what, const char *why);

void set_option(rd_kafka_conf_t *conf, const char *name, const char *value);
void set_number(rd_kafka_conf_t *conf, const char *name, double value);

/* A configuration with what all clients share: bootstrap address, no Nagle delay. */
rd_kafka_conf_t *base_conf(const struct options *options);
rd_kafka_t *new_client(rd_kafka_type_t type, rd_kafka_conf_t *conf);

/* Fills offsets[0..partitions-1] with the log start (which = -2) or the log end (which = -1). */
void list_offsets(rd_kafka_t *client, const struct options *options, int64_t which, int64_t *offsets);
int64_t sum(const int64_t *values, int count);

/* By how much the log ends together have grown beyond `before`, as soon as that is what is expected. With acks=1 the
 * followers of a cluster may come later, and until they do clients are told of an earlier end. */
int64_t stored_since(rd_kafka_t *client, const struct options *options, int64_t before, int64_t expected);

int64_t now_ns(void);
double cpu_seconds(void);

#endif
