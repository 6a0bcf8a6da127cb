/* librdkafka's in-memory mock cluster in a process of its own: the C reference.
 *
 * Prints {"bootstrap": ...}, then obeys lines "topic NAME PARTITIONS" from standard input, each answered with one
 * line {"error": ...}; ends when standard input closes, so it cannot outlive the harness. */
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include <stdio.h>

#include "client.h"
#include "options.h"

int run_mock(void) {
    rd_kafka_t *owner = new_client(RD_KAFKA_PRODUCER, rd_kafka_conf_new());
    rd_kafka_mock_cluster_t *cluster = rd_kafka_mock_cluster_new(owner, 1);
    if (cluster == NULL) {
        fail("mock", "the mock cluster could not be created");
    }
    printf("{\"bootstrap\": \"%s\"}\n", rd_kafka_mock_cluster_bootstraps(cluster));
    fflush(stdout);
    char line[512];
    while (fgets(line, sizeof(line), stdin) != NULL) {
        char topic[256];
        int partitions;
        if (sscanf(line, "topic %255s %d", topic, &partitions) != 2) {
            printf("{\"error\": \"expected: topic NAME PARTITIONS\"}\n");
        } else {
            rd_kafka_resp_err_t err = rd_kafka_mock_topic_create(cluster, topic, partitions, 1);
            printf("{\"error\": \"%s\"}\n", err ? rd_kafka_err2str(err) : "");
        }
        fflush(stdout);
    }
    rd_kafka_mock_cluster_destroy(cluster);
    rd_kafka_destroy(owner);
    return 0;
}
