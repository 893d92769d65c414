package demo

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// broker is a Kafka broker in this process.
type broker struct {
	cluster *kfake.Cluster
	addrs   []string
}

func startBroker(topic string) (*broker, error) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, topic))
	if err != nil {
		return nil, fmt.Errorf("starting the embedded Kafka broker: %w", err)
	}
	return &broker{cluster: c, addrs: c.ListenAddrs()}, nil
}

// Close stops the broker.
func (b *broker) Close() { b.cluster.Close() }

// produce plays the story into the topic, keyed by flight, so that the changes of a flight stay in order.
func (d *demo) produce(ctx context.Context, b *broker, flights []flight) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.addrs...), kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(5*time.Millisecond))
	if err != nil {
		return err
	}
	defer cl.Close()
	failed := make(chan error, 1)
	began, n := d.Env.Now(), int64(0)
	truth, err := story(flights, func(e event) error {
		n++
		if d.Rate > 0 && n%200 == 0 {
			ahead := time.Duration(float64(n)/float64(d.Rate)*1e9) - d.Env.Now().Sub(began)
			if ahead > 0 {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-d.Env.After(ahead):
				}
			}
		}
		cl.Produce(ctx, &kgo.Record{Key: strconv.AppendInt(nil, e.key, 10), Value: e.value}, func(_ *kgo.Record, err error) {
			if err != nil {
				select {
				case failed <- err:
				default:
				}
				return
			}
			d.produced.Add(1)
		})
		select {
		case err := <-failed:
			return fmt.Errorf("producing: %w", err)
		default:
			return nil
		}
	})
	if err != nil {
		return err
	}
	if err := cl.Flush(ctx); err != nil {
		return err
	}
	maps.Copy(d.truth, truth)
	return nil
}
