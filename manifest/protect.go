package manifest

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/calve-io/calve/storage"
)

// Tags, branches and consumers tell expiry what it must leave alone (paimon-format §16). Branches belong to whoever made
// them and are only read.

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

// branchChangelogs gives the long-lived changelogs of all branches.
func (t *Table) branchChangelogs(ctx context.Context) ([]*Snapshot, error) {
	var all []*Snapshot
	for branch, err := range t.store.List(ctx, "branch") {
		if err != nil {
			return nil, fmt.Errorf("list branches: %w", err)
		}
		if !branch.Dir {
			continue
		}
		ids, err := t.longLivedIDs(ctx, branch.Name+"/"+changelogDir)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			s, err := t.foreignSnapshot(ctx, branch.Name+"/"+changelogName(id))
			if errors.Is(err, storage.ErrNotFound) {
				continue // expired since the listing
			}
			if err != nil {
				return nil, err
			}
			all = append(all, s)
		}
	}
	return all, nil
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
