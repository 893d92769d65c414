package manifest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/calve-io/calve/storage"
)

// An expiry deletes snapshots before their files: a snapshot that can be read is whole. A process that is killed in
// between would leave files that no snapshot names, so what is to be deleted is written down first, in the folder
// expiryDir, and the next expiry of any process ends what it finds there. Nothing of it is needed to read the table.

const (
	expiryDir       = "calve/expiry"
	maxExpiryRecord = 1 << 28 // bytes of a record: some million names
)

// expiryRecord is what an expiry is about to delete.
type expiryRecord struct {
	End  int64      `json:"end"`      // snapshots, or long-lived changelogs, below it go
	Told bool       `json:"told"`     // they are long-lived changelogs
	Data [][]string `json:"data"`     // data files, each with its index files behind it
	Meta []string   `json:"metadata"` // manifests, lists, index files and statistics
}

// wantedSince looks, between the plan of an expiry and its first deletion, whether a consumer, a read or a tag has come
// that wants what goes. tags are those that the plan knew; one may have come in place of another of its name. Then nothing
// is deleted this time.
func (t *Table) wantedSince(ctx context.Context, end int64, tags map[string]*Snapshot) (bool, error) {
	now, err := t.Tags(ctx)
	if err != nil {
		return false, err
	}
	for name, s := range now {
		// The name of a manifest list is unique: snapshots of one number may differ after a rollback.
		if old := tags[name]; old == nil || old.ID != s.ID || old.DeltaManifestList != s.DeltaManifestList {
			return true, nil
		}
	}
	low, err := t.wanted(ctx)
	return low < end, err
}

// carryOut writes down what is to be deleted, has unname delete what names it, and then deletes it.
func (t *Table) carryOut(ctx context.Context, x *expiry, rec expiryRecord, done *Expired, unname func() error) error {
	rec.Data, rec.Meta = [][]string{}, x.metadata()
	for _, names := range x.files {
		rec.Data = append(rec.Data, names)
	}
	slices.SortFunc(rec.Data, slices.Compare)
	data, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	name := expiryDir + "/" + t.env.NewID()
	// The name is our own, so what stands there already is the record of a try whose answer was lost.
	won, err := storage.PutOnce(ctx, t.store, name, data)
	if err == nil && !won {
		err = fmt.Errorf("put %s: %w with other bytes, though its name is made of a new id; nothing was deleted, expire again", t.store.URL(name), storage.ErrExists)
	}
	if err != nil {
		return err
	}
	if err := unname(); err != nil {
		return err
	}
	return t.deleteFiles(ctx, &rec, name, done)
}

// deleteFiles deletes the files of a record and then the record.
func (t *Table) deleteFiles(ctx context.Context, rec *expiryRecord, name string, done *Expired) error {
	n, err := t.deleteAll(ctx, slices.Concat(rec.Data...))
	done.DataFiles += n
	if err != nil {
		return err
	}
	if n, err = t.deleteAll(ctx, rec.Meta); err != nil {
		return err
	}
	done.Metadata += n
	return t.store.Delete(ctx, name)
}

// finishExpiries ends expiries that were not. Snapshots that their records would have deleted and that are still there
// stay; whoever may have come to want them since then is asked by the expiry that follows.
func (t *Table) finishExpiries(ctx context.Context) (Expired, error) {
	var done Expired
	var names []string
	for info, err := range t.store.List(ctx, expiryDir) {
		if err != nil {
			return done, fmt.Errorf("list expiries: %w", err)
		}
		if !info.Dir && !strings.HasPrefix(info.Name[len(expiryDir)+1:], ".") {
			names = append(names, info.Name)
		}
	}
	for _, name := range names {
		if err := t.finishExpiry(ctx, name, &done); err != nil {
			return done, fmt.Errorf("ending an expiry that was cut short (%s): %w", t.store.URL(name), err)
		}
	}
	return done, nil
}

func (t *Table) finishExpiry(ctx context.Context, name string, done *Expired) error {
	data, err := storage.ReadAll(ctx, t.store, name, maxExpiryRecord)
	if errors.Is(err, storage.ErrNotFound) {
		return nil // ended by someone else
	}
	if err != nil {
		return err
	}
	var rec expiryRecord
	if err := json.Unmarshal(data, &rec); err != nil {
		return &CorruptError{Name: t.store.URL(name), Offset: jsonOffset(err, data), Reason: "not a record of an expiry", Err: err}
	}
	x, err := t.newExpiry(ctx)
	if err != nil {
		return err
	}
	for _, file := range rec.Data {
		if len(file) > 0 {
			x.files[file[0]] = file
		}
	}
	for _, m := range rec.Meta {
		x.lists[m] = struct{}{}
	}
	earliest, err := t.Earliest(ctx)
	if err != nil {
		return err
	}
	// Snapshots below the end that are still there name files that a later one of them has removed. One whose own files are
	// gone was brought back by a power cut, which can undo its deletion; the expiry that follows deletes it again.
	for id := earliest.ID; id < max(rec.End, earliest.ID+1); id++ {
		s, err := t.readSnapshot(ctx, id)
		if err == nil {
			err = x.staying(ctx, s, true)
		}
		if err != nil && (id >= rec.End || !errors.Is(err, storage.ErrNotFound)) {
			return err
		}
	}
	if rec.Told {
		if err := x.needLongLived(ctx, rec.End); err != nil {
			return err
		}
	}
	if err := x.protect(ctx, max(rec.End, earliest.ID), ""); err != nil {
		return err
	}
	rest := expiryRecord{End: rec.End, Meta: x.metadata()}
	for _, file := range x.files {
		rest.Data = append(rest.Data, file)
	}
	return t.deleteFiles(ctx, &rest, name, done)
}

// metadata lists the metadata and index files of what expires that nothing names which stays.
func (x *expiry) metadata() []string {
	names := []string{}
	for _, set := range []map[string]struct{}{x.indexes, x.manifests, x.lists} {
		names = append(names, x.unnamed(set)...)
	}
	return names
}
