package ingest

import (
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
)

// countFetches counts the records that a client has taken from the brokers.
type countFetches struct{ n atomic.Int64 }

func (c *countFetches) OnFetchBatchRead(_ kgo.BrokerMetadata, _ string, _ int32, m kgo.FetchBatchMetrics) {
	c.n.Add(int64(m.NumRecords))
}

func (c *countFetches) records() int { return int(c.n.Load()) }
