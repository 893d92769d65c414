package manifest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/calve-io/calve/storage"
)

// Consumer is the position of a stream's reader and at the same time its lease: expiry leaves the snapshot it reads next,
// and all after it (`consumer.ConsumerManager`, paimon-format §15). The file is `consumer/consumer-ID`.
type Consumer struct {
	ID      string
	Next    int64     // the snapshot it reads next
	Keeps   int64     // the earliest snapshot it needs, which is what Paimon's engines take for Next
	Renewed time.Time // when the file was written last, by the clock of the store
}

var (
	// ErrNoConsumer: there is no consumer of that name.
	ErrNoConsumer = errors.New("no such consumer")
	// ErrConsumerName: no consumer can have that name.
	ErrConsumerName = errors.New("not a name for a consumer")
)

// Leases of readers that have no position to keep (a scan) are consumers whose names begin with LeasePrefix. They renew
// themselves every minute, and calve's expiry drops one that has not done so for LeaseTime, whatever the options of the
// table say, for a reader that was killed never comes back to delete its own. To Paimon's expiry they are consumers.
const (
	LeasePrefix = "calve-lease-"
	LeaseTime   = 10 * time.Minute
)

// A name and what is put before it make a file name, which most file systems hold to 255 bytes.
const maxConsumerSize, maxConsumerName = 1 << 16, 200

func consumerName(id string) string { return "consumer/consumer-" + id }

// Consumers gives the next snapshot that each registered consumer wants to read.
func (t *Table) Consumers(ctx context.Context) (map[string]int64, error) {
	all, err := t.AllConsumers(ctx)
	if err != nil {
		return nil, err
	}
	next := map[string]int64{}
	for i := range all {
		next[all[i].ID] = all[i].Next
	}
	return next, nil
}

// AllConsumers gives the consumers, by name.
func (t *Table) AllConsumers(ctx context.Context) ([]Consumer, error) {
	var all []Consumer
	for c, err := range t.listConsumers(ctx) {
		if err != nil {
			return nil, err
		}
		read, err := t.consumer(ctx, c.ID)
		if errors.Is(err, storage.ErrNotFound) {
			continue // it has unregistered since the listing
		}
		if err != nil {
			return nil, fmt.Errorf("consumer %q: %w", c.ID, err)
		}
		c.Next, c.Keeps = read.Next, read.Keeps
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b Consumer) int { return cmp.Compare(a.ID, b.ID) })
	return all, nil
}

// wanted is the earliest snapshot that a consumer or a read in this process needs.
func (t *Table) wanted(ctx context.Context) (int64, error) {
	all, err := t.AllConsumers(ctx)
	if err != nil {
		return 0, err
	}
	low := t.held()
	for i := range all {
		low = min(low, all[i].Keeps)
	}
	return low, nil
}

// listConsumers lists the consumers without reading them.
func (t *Table) listConsumers(ctx context.Context) iter.Seq2[Consumer, error] {
	return func(yield func(Consumer, error) bool) {
		for info, err := range t.store.List(ctx, "consumer") {
			if err != nil {
				yield(Consumer{}, fmt.Errorf("list consumers: %w", err))
				return
			}
			id, ok := strings.CutPrefix(path.Base(info.Name), "consumer-")
			if ok && !info.Dir && !yield(Consumer{ID: id, Renewed: info.ModTime}, nil) {
				return
			}
		}
	}
}

// Consumer gives the position of a consumer: ErrNoConsumer when it is not registered.
func (t *Table) Consumer(ctx context.Context, id string) (int64, error) {
	if err := checkConsumer(id); err != nil {
		return 0, err
	}
	c, err := t.consumer(ctx, id)
	if errors.Is(err, storage.ErrNotFound) {
		return 0, fmt.Errorf("%w: %q of %s", ErrNoConsumer, id, t.store.URL(""))
	}
	if err != nil {
		return 0, fmt.Errorf("consumer %q: %w", id, err)
	}
	return c.Next, nil
}

// PutConsumer registers a consumer or moves or renews it. The write is durable. An expiry that runs at this moment may
// have looked before; so who registers looks afterwards whether its snapshot is still there.
func (t *Table) PutConsumer(ctx context.Context, id string, next int64) error {
	return t.PutConsumerKeeping(ctx, id, next, next)
}

// PutConsumerKeeping is PutConsumer for a reader that needs earlier snapshots too, from keeps on. What Paimon calls
// nextSnapshot is the earliest one then, so that its expiry leaves that, and a key of calve's own, which Paimon ignores,
// says what the reader reads next. An engine of Paimon that takes the consumer over begins with the earliest.
func (t *Table) PutConsumerKeeping(ctx context.Context, id string, next, keeps int64) error {
	if err := errors.Join(checkConsumer(id), t.mainOnly()); err != nil {
		return err
	}
	if next < 1 || keeps < 1 || keeps > next {
		return fmt.Errorf("consumer %q: its next snapshot must be at least 1, and none that it needs later, not %d and %d", id, next, keeps)
	}
	data := fmt.Appendf(nil, "{\n  \"nextSnapshot\" : %d", keeps)
	if keeps < next {
		data = fmt.Appendf(data, ",\n  \"calveNext\" : %d", next)
	}
	err := t.replace(ctx, consumerName(id), append(data, "\n}"...))
	if err != nil {
		return fmt.Errorf("consumer %q: %w", id, err)
	}
	return nil
}

// replace writes a small object durably, in place of what is there. Unlike Put it is whole after a power cut, and it is
// there at every moment: an expiry that reads it must not take a consumer for gone.
func (t *Table) replace(ctx context.Context, name string, data []byte) error {
	u, err := t.store.Create(ctx, name)
	if err != nil {
		return err
	}
	if _, err := u.Write(data); err != nil {
		u.Abort()
		return err
	}
	return u.Commit()
}

// DropConsumer unregisters a consumer; one that is not there is no error.
func (t *Table) DropConsumer(ctx context.Context, id string) error {
	if err := errors.Join(checkConsumer(id), t.mainOnly()); err != nil {
		return err
	}
	if err := t.store.Delete(ctx, consumerName(id)); err != nil {
		return fmt.Errorf("consumer %q: %w", id, err)
	}
	return nil
}

// expireConsumers drops the consumers that were not renewed for longer than age, 0 for none, and the leases that were not
// for LeaseTime. As in Paimon the time of the last change is the store's, and now is ours. Stores cannot delete a file on
// condition that it has not changed, so it is looked at again just before; a reader that lives nevertheless writes it anew
// when it renews it, and the expiry that follows asks for it again before it deletes anything.
func (t *Table) expireConsumers(ctx context.Context, age time.Duration, now time.Time) (int, error) {
	dead := func(c *Consumer) bool {
		idle := now.Sub(c.Renewed)
		return age > 0 && idle > age || strings.HasPrefix(c.ID, LeasePrefix) && idle > LeaseTime
	}
	var some []string
	for c, err := range t.listConsumers(ctx) {
		if err != nil {
			return 0, err
		}
		if dead(&c) {
			some = append(some, c.ID)
		}
	}
	n := 0
	for _, id := range some {
		dropped, err := t.dropIf(ctx, id, dead)
		if err != nil {
			return n, fmt.Errorf("consumer %q: %w", id, err)
		}
		n += dropped
	}
	return n, nil
}

// dropIf drops a consumer for which a condition holds, and says how many these were.
func (t *Table) dropIf(ctx context.Context, id string, condition func(*Consumer) bool) (int, error) {
	for c, err := range t.listConsumers(ctx) {
		if err != nil {
			return 0, err
		}
		if c.ID != id || !condition(&c) {
			continue
		}
		if err := t.store.Delete(ctx, consumerName(id)); err != nil {
			return 0, err
		}
		t.env.Log.Warn("dropped a consumer that has not renewed its lease", "table", t.store.URL(""), "consumer", id, "renewed", c.Renewed)
		return 1, nil
	}
	return 0, nil
}

// checkConsumer refuses names that cannot be a file's.
func checkConsumer(id string) error {
	switch {
	case strings.TrimSpace(id) == "":
		return fmt.Errorf("%w: it has blanks only", ErrConsumerName)
	case len(id) > maxConsumerName:
		return fmt.Errorf("%w: it has %d bytes, of which there may be %d", ErrConsumerName, len(id), maxConsumerName)
	}
	if err := checkFileName(id); err != nil {
		return fmt.Errorf("%w: %w", ErrConsumerName, err)
	}
	return nil
}

// consumer reads one consumer file. Paimon overwrites it in place, so a read that finds half of it is repeated.
func (t *Table) consumer(ctx context.Context, id string) (Consumer, error) {
	name := consumerName(id)
	var last error
	for range maxFailures {
		data, err := storage.ReadAll(ctx, t.store, name, maxConsumerSize)
		if err != nil {
			return Consumer{}, err
		}
		var c struct {
			Keeps *int64 `json:"nextSnapshot"`
			Next  int64  `json:"calveNext"`
		}
		if err := json.Unmarshal(data, &c); err != nil {
			last = &CorruptError{Name: t.store.URL(name), Offset: jsonOffset(err, data), Reason: "not a consumer in JSON", Err: err}
		} else if c.Keeps == nil {
			last = &CorruptError{Name: t.store.URL(name), Reason: "the consumer has no nextSnapshot"}
		} else {
			return Consumer{ID: id, Next: max(c.Next, *c.Keeps), Keeps: *c.Keeps}, nil
		}
		if err := t.pause(ctx, minWait); err != nil {
			return Consumer{}, err
		}
	}
	return Consumer{}, last
}
