package manifest

import "fmt"

// changelog is the changelog part of a commit on its way: manifests of the files and their list. Like the delta it does
// not depend on the base, so a lost race costs nothing of it.
type changelog struct {
	manifests []metadataFile
	list      metadataFile
	rows      int64
}

// checkChangelog checks the changelog files of a commit. seen are its other files.
func checkChangelog(entries []Entry, seen map[fileID]struct{}) error {
	for i := range entries {
		e := &entries[i]
		if err := checkFileName(e.File.Name); err != nil {
			return err
		}
		if e.Kind != Add {
			return fmt.Errorf("file %s: an entry of kind %d does not belong into a changelog", e.File.Name, e.Kind)
		}
		id := idOf(e)
		if _, twice := seen[id]; twice {
			return fmt.Errorf("file %s is named by two entries", id)
		}
		seen[id] = struct{}{}
	}
	return nil
}

// encodeChangelog encodes the manifests of the commit's changelog files and their list. Without such files there is
// neither: a list, even an empty one, would make the snapshot one that tells changes.
func (p *pending) encodeChangelog() error {
	if len(p.commit.Changelog) == 0 {
		return nil
	}
	for i := range p.commit.Changelog {
		p.changes.rows += p.commit.Changelog[i].File.Rows
	}
	var err error
	if p.changes.manifests, err = p.encodeManifests(p.commit.Changelog, p.schema, p.perManifest()); err != nil {
		return refusal{err}
	}
	metas := make([]Meta, len(p.changes.manifests))
	for i := range metas {
		metas[i] = *p.changes.manifests[i].meta
	}
	p.changes.list = metadataFile{name: p.listName()}
	p.changes.list.data, err = encodeMetas(p.changes.list.name, metas)
	return err
}

// files are the metadata files of the changelog.
func (c *changelog) files() []*metadataFile {
	if c.list.name == "" {
		return nil
	}
	out := []*metadataFile{&c.list}
	for i := range c.manifests {
		out = append(out, &c.manifests[i])
	}
	return out
}

// describe names the changelog in a snapshot.
func (c *changelog) describe(s *Snapshot) {
	if c.list.name == "" {
		return
	}
	size := int64(len(c.list.data))
	s.ChangelogManifestList, s.ChangelogManifestListSize, s.ChangelogRecordCount = &c.list.name, &size, c.rows
}
