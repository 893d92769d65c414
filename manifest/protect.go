package manifest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/calve-io/calve/storage"
)

// Tags, branches and consumers tell expiry what it must leave alone (paimon-format §16). Branches and consumers belong to
// whoever made them and are only read.

const maxConsumerSize = 1 << 16

// Tags gives the snapshot behind each tag of the main branch by the tag's name.
func (t *Table) Tags(ctx context.Context) (map[string]*Snapshot, error) {
	return t.tagsIn(ctx, "tag")
}

// tagsIn reads the tags of a folder. A tag file is the snapshot's JSON with two more keys.
func (t *Table) tagsIn(ctx context.Context, dir string) (map[string]*Snapshot, error) {
	tags := map[string]*Snapshot{}
	names, err := t.tagNames(ctx, dir)
	if err != nil {
		return nil, err
	}
	for _, tag := range names {
		s, err := t.foreignSnapshot(ctx, dir+"/tag-"+tag)
		if errors.Is(err, storage.ErrNotFound) {
			continue // deleted since the listing
		}
		if err != nil {
			return nil, fmt.Errorf("tag %q: %w", tag, err)
		}
		tags[tag] = s
	}
	return tags, nil
}

// tagNames lists the tags of a folder.
func (t *Table) tagNames(ctx context.Context, dir string) ([]string, error) {
	var names []string
	for info, err := range t.store.List(ctx, dir) {
		if err != nil {
			return nil, fmt.Errorf("list tags: %w", err)
		}
		if tag, ok := strings.CutPrefix(path.Base(info.Name), "tag-"); ok && !info.Dir {
			names = append(names, tag)
		}
	}
	return names, nil
}

// foreignSnapshot reads a snapshot that is not one of the main branch's numbered files.
func (t *Table) foreignSnapshot(ctx context.Context, name string) (*Snapshot, error) {
	data, err := storage.ReadAll(ctx, t.store, name, maxSnapshotSize)
	if err != nil {
		return nil, err
	}
	return decodeSnapshot(t.store.URL(name), data)
}

// branchSnapshots gives the snapshots and tags of all branches. Their data files and manifests lie in the folders of
// the main branch.
func (t *Table) branchSnapshots(ctx context.Context) ([]*Snapshot, error) {
	var all []*Snapshot
	for branch, err := range t.store.List(ctx, "branch") {
		if err != nil {
			return nil, fmt.Errorf("list branches: %w", err)
		}
		if !branch.Dir {
			continue
		}
		tags, err := t.tagsIn(ctx, branch.Name+"/tag")
		if err != nil {
			return nil, err
		}
		for _, s := range tags {
			all = append(all, s)
		}
		for info, err := range t.store.List(ctx, branch.Name+"/snapshot") {
			if err != nil {
				return nil, fmt.Errorf("list snapshots of %s: %w", branch.Name, err)
			}
			if _, ok := numbered(path.Base(info.Name), "snapshot-"); !ok {
				continue
			}
			s, err := t.foreignSnapshot(ctx, info.Name)
			if err != nil {
				return nil, err
			}
			all = append(all, s)
		}
	}
	return all, nil
}

// Consumers gives the next snapshot that each registered consumer wants to read.
func (t *Table) Consumers(ctx context.Context) (map[string]int64, error) {
	all := map[string]int64{}
	for info, err := range t.store.List(ctx, "consumer") {
		if err != nil {
			return nil, fmt.Errorf("list consumers: %w", err)
		}
		id, ok := strings.CutPrefix(path.Base(info.Name), "consumer-")
		if !ok || info.Dir {
			continue
		}
		next, err := t.consumer(ctx, info.Name)
		if errors.Is(err, storage.ErrNotFound) {
			continue // it has unregistered since the listing
		}
		if err != nil {
			return nil, fmt.Errorf("consumer %q: %w", id, err)
		}
		all[id] = next
	}
	return all, nil
}

// consumer reads one consumer file. It is overwritten in place, so a read that finds half of it is repeated.
func (t *Table) consumer(ctx context.Context, name string) (int64, error) {
	var last error
	for range maxFailures {
		data, err := storage.ReadAll(ctx, t.store, name, maxConsumerSize)
		if err != nil {
			return 0, err
		}
		var c struct {
			Next *int64 `json:"nextSnapshot"`
		}
		if err := json.Unmarshal(data, &c); err != nil {
			last = &CorruptError{Name: t.store.URL(name), Offset: jsonOffset(err, data), Reason: "not a consumer in JSON", Err: err}
		} else if c.Next == nil {
			last = &CorruptError{Name: t.store.URL(name), Reason: "the consumer has no nextSnapshot"}
		} else {
			return *c.Next, nil
		}
		if err := t.pause(ctx, minWait); err != nil {
			return 0, err
		}
	}
	return 0, last
}
