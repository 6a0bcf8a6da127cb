// A share consumer of franz-go: prints the values that it gets, accepts them, and ends when nobody writes to its input.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	server, topic, group := os.Args[1], os.Args[2], os.Args[3]
	client, err := kgo.NewClient(kgo.SeedBrokers(server), kgo.ConsumeTopics(topic), kgo.ShareGroup(group))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	ctx, end := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		end()
	}()
	for ctx.Err() == nil {
		fetched := client.PollFetches(ctx)
		fetched.EachRecord(func(record *kgo.Record) {
			fmt.Println(string(record.Value))
			record.Ack(kgo.AckAccept)
		})
		if err := client.FlushAcks(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	client.Close()
}
