package manifest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/calve-io/calve/storage"
)

// Tag is a named snapshot. The file `tag/tag-NAME` holds the snapshot's JSON and two more keys (`tag.Tag`, paimon-format
// §16); it can outlive the snapshot file and keeps its files from expiry.
type Tag struct {
	Name     string
	Snapshot *Snapshot
	Created  time.Time     // local time of the writer, as if UTC; zero: not known
	Retained time.Duration // how long it is to be kept; 0: until it is deleted
}

var (
	// ErrNoTag: there is no tag of that name.
	ErrNoTag = errors.New("no such tag")
	// ErrTagExists: there is a tag of that name already.
	ErrTagExists = errors.New("tag already exists")
)

func tagName(name string) string { return "tag/tag-" + name }

// wireTag are the keys of a tag file beside those of the snapshot.
type wireTag struct {
	Created  []int       `json:"tagCreateTime"`   // year, month, day, hour, minute, second, nanosecond; the last may lack
	Retained json.Number `json:"tagTimeRetained"` // seconds, as a decimal number
}

// decodeTag reads a tag file.
func decodeTag(name, file string, data []byte) (*Tag, error) {
	s, err := decodeSnapshot(file, data)
	if err != nil {
		return nil, err
	}
	var w wireTag
	if err := json.Unmarshal(data, &w); err != nil {
		return nil, &CorruptError{Name: file, Offset: jsonOffset(err, data), Reason: "not a tag in JSON", Err: err}
	}
	tag := &Tag{Name: name, Snapshot: s}
	if n := len(w.Created); n > 0 {
		if n < 5 || n > 7 {
			return nil, &CorruptError{Name: file, Reason: fmt.Sprintf("tagCreateTime has %d parts, not 5 to 7", n)}
		}
		c := append(w.Created, 0, 0)
		tag.Created = time.Date(c[0], time.Month(c[1]), c[2], c[3], c[4], c[5], c[6], time.UTC)
	}
	if w.Retained != "" {
		seconds, err := w.Retained.Float64()
		if err != nil || seconds < 0 || seconds > 1<<33 {
			return nil, &CorruptError{Name: file, Reason: fmt.Sprintf("tagTimeRetained %s is no number of seconds", w.Retained)}
		}
		tag.Retained = time.Duration(seconds * float64(time.Second))
	}
	return tag, nil
}

// Tag gives a tag by name: ErrNoTag, with the names there are, when it is not there.
func (t *Table) Tag(ctx context.Context, name string) (*Tag, error) {
	if err := checkFileName(name); err != nil {
		return nil, fmt.Errorf("tag: %w", err)
	}
	data, err := storage.ReadAll(ctx, t.store, tagName(name), maxSnapshotSize)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, t.noTag(ctx, name)
	}
	if err != nil {
		return nil, fmt.Errorf("tag %q: %w", name, err)
	}
	return decodeTag(name, t.store.URL(tagName(name)), data)
}

// noTag is the error of a tag that is not there.
func (t *Table) noTag(ctx context.Context, name string) error {
	names, err := t.tagNames(ctx, "tag")
	if err != nil {
		return fmt.Errorf("%w: %q of %s", ErrNoTag, name, t.store.URL(""))
	}
	if len(names) == 0 {
		return fmt.Errorf("%w: %q; %s has no tags", ErrNoTag, name, t.store.URL(""))
	}
	slices.Sort(names)
	const most = 20
	if len(names) > most {
		names = append(names[:most], fmt.Sprintf("and %d more", len(names)-most))
	}
	return fmt.Errorf("%w: %q; %s has %s", ErrNoTag, name, t.store.URL(""), strings.Join(names, ", "))
}

// AllTags gives the tags of the branch that is open, by snapshot and name.
func (t *Table) AllTags(ctx context.Context) ([]Tag, error) {
	var all []Tag
	names, err := t.tagNames(ctx, "tag")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		tag, err := t.Tag(ctx, name)
		if errors.Is(err, ErrNoTag) {
			continue // deleted since the listing
		}
		if err != nil {
			return nil, err
		}
		all = append(all, *tag)
	}
	slices.SortFunc(all, func(a, b Tag) int {
		return cmp.Or(cmp.Compare(a.Snapshot.ID, b.Snapshot.ID), strings.Compare(a.Name, b.Name))
	})
	return all, nil
}

// checkTagName refuses names that Paimon refuses or that would be taken for something else: a number is read as a
// snapshot by `scan.version` and by incremental-between.
func checkTagName(name string) error {
	if err := checkFileName(name); err != nil {
		return fmt.Errorf("tag: %w", err)
	}
	if strings.TrimSpace(name) == "" {
		return errors.New("tag: a name of blanks only")
	}
	if strings.Trim(name, "0123456789") == "" {
		return fmt.Errorf("tag: the name %q is a number and would be taken for a snapshot", name)
	}
	if strings.Contains(name, ",") {
		return fmt.Errorf("tag: the name %q has a comma, which separates names in incremental-between", name)
	}
	return nil
}

// CreateTag names a snapshot (`utils.TagManager`). The tag is created by a conditional put: of two creators of one name
// one gets ErrTagExists. With a retention the file says when it was made and how long it is to be kept; expiry deletes it
// then in tables with `tag.time-expire-enabled`. Without one it is that of `tag.default-time-retained`, if that is set.
//
// An expiry that runs in another process at the same moment may not see the tag yet, so name snapshots that the
// retention of snapshots still keeps for a while.
func (t *Table) CreateTag(ctx context.Context, name string, s *Snapshot, retained time.Duration) error {
	if err := errors.Join(checkTagName(name), t.mainOnly()); err != nil {
		return err
	}
	if retained < 0 {
		return fmt.Errorf("tag %q: it cannot be kept for %s", name, retained)
	}
	if err := acquire(ctx, t.expiry); err != nil {
		return fmt.Errorf("tag %q: %w", name, err)
	}
	defer release(t.expiry)
	// The bytes of the snapshot file, so that nothing is lost that this version does not know.
	data, err := storage.ReadAll(ctx, t.store, snapshotName(s.ID), maxSnapshotSize)
	if errors.Is(err, storage.ErrNotFound) {
		return fmt.Errorf("tag %q: snapshot %d of %s: %w", name, s.ID, t.store.URL(""), ErrSnapshotExpired)
	}
	if err == nil && retained == 0 {
		retained, err = t.defaultRetained(ctx)
	}
	if err == nil && retained > 0 {
		data, err = withRetention(data, t.env.Now(), retained)
	}
	if err == nil {
		_, err = decodeTag(name, t.store.URL(tagName(name)), data)
	}
	if err != nil {
		return fmt.Errorf("tag %q: %w", name, err)
	}
	won, err := storage.PutOnce(ctx, t.store, tagName(name), data)
	if err != nil {
		return fmt.Errorf("tag %q: %w", name, err)
	}
	if !won {
		return fmt.Errorf("%w: %q of %s; delete it first, or use another name", ErrTagExists, name, t.store.URL(""))
	}
	return nil
}

// defaultRetained is how long tags are kept that do not say so themselves; 0: until they are deleted.
func (t *Table) defaultRetained(ctx context.Context) (time.Duration, error) {
	s, err := t.LatestSchema(ctx)
	if err != nil {
		return 0, err
	}
	o, err := s.ParseOptions()
	return o.TagDefaultRetained, err
}

// withRetention adds a tag's own keys to the JSON of a snapshot.
func withRetention(data []byte, now time.Time, retained time.Duration) ([]byte, error) {
	body, ok := bytes.CutSuffix(bytes.TrimSpace(data), []byte("}"))
	if !ok {
		return nil, fmt.Errorf("%w: the snapshot file does not end with a brace", ErrCorrupt)
	}
	body = bytes.TrimRight(body, " \t\r\n")
	return fmt.Appendf(slices.Clone(body), ",\n  \"tagCreateTime\" : [ %d, %d, %d, %d, %d, %d, %d ],\n  \"tagTimeRetained\" : %d.%09d\n}",
		now.Year(), now.Month(), now.Day(), now.Hour(), now.Minute(), now.Second(), now.Nanosecond(),
		retained/time.Second, retained%time.Second), nil
}

// DeleteTag deletes a tag: ErrNoTag when it is not there. Files that only the tag kept are deleted too.
func (t *Table) DeleteTag(ctx context.Context, name string) (Expired, error) {
	if err := t.mainOnly(); err != nil {
		return Expired{}, err
	}
	if err := acquire(ctx, t.expiry); err != nil {
		return Expired{}, fmt.Errorf("delete tag %q: %w", name, err)
	}
	defer release(t.expiry)
	tag, err := t.Tag(ctx, name)
	if err != nil {
		return Expired{}, err
	}
	return t.dropTag(ctx, tag)
}

// expireTags deletes the tags whose time is over (`tag.TagTimeExpire`): those that say when they were made and for how
// long they are to be kept. Both are wall clock times of where they were made; now is one of here.
func (t *Table) expireTags(ctx context.Context, now time.Time) (Expired, error) {
	var done Expired
	tags, err := t.AllTags(ctx)
	if err != nil {
		return done, err
	}
	wall := time.Date(now.Year(), now.Month(), now.Day(), now.Hour(), now.Minute(), now.Second(), now.Nanosecond(), time.UTC)
	for i := range tags {
		if tag := &tags[i]; tag.Created.IsZero() || tag.Retained <= 0 || !wall.After(tag.Created.Add(tag.Retained)) {
			continue
		}
		d, err := t.dropTag(ctx, &tags[i])
		done.DataFiles, done.Metadata = done.DataFiles+d.DataFiles, done.Metadata+d.Metadata
		if err != nil {
			return done, err
		}
		done.Tags++
	}
	return done, nil
}

// dropTag deletes a tag, then the files that only it kept; expiry is held.
func (t *Table) dropTag(ctx context.Context, tag *Tag) (Expired, error) {
	done, err := t.dropTagged(ctx, tag.Name, tag.Snapshot)
	if err != nil {
		t.swept = false // the next expiry ends what this one began
		return done, fmt.Errorf("delete tag %q: %w", tag.Name, err)
	}
	return done, nil
}

// dropTagged deletes a tag and the files of a snapshot that had expired and that no tag names any more. A file that is live in it
// but in none of the earliest snapshot, the other tags and the branches is live nowhere: a file that was removed never
// comes back.
func (t *Table) dropTagged(ctx context.Context, name string, s *Snapshot) (Expired, error) {
	drop := func() error { return t.store.Delete(ctx, tagName(name)) }
	earliest, err := t.Earliest(ctx)
	if errors.Is(err, ErrNoSnapshot) || err == nil && earliest.ID <= s.ID {
		return Expired{}, drop() // its files are those of a snapshot that is there, or nobody can tell
	}
	if err != nil {
		return Expired{}, err
	}
	x, err := t.newExpiry(ctx)
	if err != nil {
		return Expired{}, err
	}
	live, err := t.Live(ctx, s, nil)
	if err != nil {
		return Expired{}, err
	}
	for i := range live {
		if err := x.condemn(&live[i]); err != nil {
			return Expired{}, err
		}
	}
	metas, err := t.manifests(ctx, s)
	if err != nil {
		return Expired{}, err
	}
	x.note(x.lists, s)
	if err := x.noteIndex(ctx, x.indexes, s); err != nil {
		return Expired{}, err
	}
	x.noteMetas(x.manifests, metas)
	if s.ChangelogManifestList != nil { // the expiry of its snapshot has left it the changelog, too
		changes, err := x.list(ctx, s, *s.ChangelogManifestList, s.ChangelogManifestListSize, true)
		if err != nil {
			return Expired{}, err
		}
		for i := range changes {
			if err := x.condemn(&changes[i]); err != nil {
				return Expired{}, err
			}
		}
	}
	if err := x.staying(ctx, earliest, true); err != nil {
		return Expired{}, err
	}
	if err := x.protect(ctx, earliest.ID, name); err != nil {
		return Expired{}, err
	}
	if err := x.protectTold(ctx, s, earliest); err != nil {
		return Expired{}, err
	}
	done := Expired{Earliest: earliest.ID}
	return done, t.carryOut(ctx, x, expiryRecord{End: earliest.ID}, &done, drop)
}
