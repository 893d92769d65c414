package export

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/calve-io/calve/storage"
)

// Ref names one version of a table's Iceberg metadata. The zero value means that there is none.
type Ref struct {
	MetadataLocation string // as Iceberg readers open it
	Version          int    // counts from 1
}

// Target is where an exported table is published: whoever asks it for the table gets the metadata of the last Swap.
type Target interface {
	// Current is the published version. It may repair what a crash in Swap left half done.
	Current(ctx context.Context) (Ref, error)
	// Load reads the metadata of a version.
	Load(ctx context.Context, ref Ref) ([]byte, error)
	// Swap publishes the metadata as the successor of old, atomically, and returns its Ref. ErrLost: old is not the
	// current version any more, nothing was published. storage.ErrUnknown: ask Current.
	Swap(ctx context.Context, old Ref, metadata []byte) (Ref, error)
	// Forget deletes a version that is neither current nor in its metadata log. A missing one is no error.
	Forget(ctx context.Context, version int) error
	// Versions lists the versions that are stored, in any order.
	Versions(ctx context.Context) ([]int, error)
}

// The folder of a table that holds its Iceberg metadata, and the names in it that Iceberg's Hadoop catalog and the
// readers of a bare folder look for. Paimon ignores the folder (design.md §2).
const (
	metadataDir    = "metadata"
	hintName       = metadataDir + "/version-hint.text"
	metadataSuffix = ".metadata.json"
)

// maxMetadataFile bounds what is read of a metadata file. Real ones have tens of kilobytes.
const maxMetadataFile = 256 << 20

// DirTarget publishes into the table's own folder: metadata/vN.metadata.json with N counting up without gaps, and
// metadata/version-hint.text with the newest N for readers that do not look further. The file vN itself is the commit,
// by conditional put; the hint only follows it.
type DirTarget struct {
	store storage.Store
}

// NewDirTarget publishes into the folder metadata/ of the store, which is a table's folder.
func NewDirTarget(store storage.Store) *DirTarget { return &DirTarget{store: store} }

func versionName(v int) string { return metadataDir + "/v" + strconv.Itoa(v) + metadataSuffix }

// parseVersion reads the N of metadata/vN.metadata.json.
func parseVersion(name string) (int, bool) {
	s, ok1 := strings.CutPrefix(name, metadataDir+"/v")
	s, ok2 := strings.CutSuffix(s, metadataSuffix)
	v, err := strconv.Atoi(s)
	return v, ok1 && ok2 && err == nil && v > 0 && strconv.Itoa(v) == s
}

func (d *DirTarget) ref(v int) Ref {
	return Ref{MetadataLocation: d.store.URL(versionName(v)), Version: v}
}

// Current finds the newest version: from the hint upwards, or by listing when the hint does not help. It repairs a
// hint that lags behind.
func (d *DirTarget) Current(ctx context.Context) (Ref, error) {
	v, hint, err := d.newest(ctx)
	if err != nil || v == 0 {
		return Ref{}, err
	}
	if hint != v {
		if err := d.putHint(ctx, v); err != nil {
			return Ref{}, err
		}
	}
	return d.ref(v), nil
}

// peek is Current without repairing anything, for readers.
func (d *DirTarget) peek(ctx context.Context) (Ref, error) {
	v, _, err := d.newest(ctx)
	if err != nil || v == 0 {
		return Ref{}, err
	}
	return d.ref(v), nil
}

// newest gives the newest version and the one that the hint names; 0 for none.
func (d *DirTarget) newest(ctx context.Context) (version, hint int, err error) {
	hint, err = d.readHint(ctx)
	if err != nil {
		return 0, 0, err
	}
	if hint > 0 {
		ok, err := d.exists(ctx, hint)
		if err != nil {
			return 0, 0, err
		}
		for v := hint; ok; v++ {
			if ok, err = d.exists(ctx, v+1); err != nil {
				return 0, 0, err
			}
			if !ok {
				return v, hint, nil
			}
		}
	}
	versions, err := d.Versions(ctx)
	for _, v := range versions {
		version = max(version, v)
	}
	return version, hint, err
}

// readHint reads the hint; a missing, empty or damaged one is 0, because a crash may leave either.
func (d *DirTarget) readHint(ctx context.Context) (int, error) {
	data, err := storage.ReadAll(ctx, d.store, hintName, 64)
	switch {
	case errors.Is(err, storage.ErrNotFound), errors.Is(err, storage.ErrTooLarge):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("find the exported version: %w", err)
	}
	v, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || v < 0 {
		return 0, nil
	}
	return v, nil
}

func (d *DirTarget) exists(ctx context.Context, v int) (bool, error) {
	f, err := d.store.Open(ctx, versionName(v))
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("find the exported version: %w", err)
	}
	return true, f.Close()
}

func (d *DirTarget) putHint(ctx context.Context, v int) error {
	if err := d.store.Put(ctx, hintName, []byte(strconv.Itoa(v))); err != nil {
		return fmt.Errorf("point to the exported version %d: %w", v, err)
	}
	return nil
}

// Load implements Target.
func (d *DirTarget) Load(ctx context.Context, ref Ref) ([]byte, error) {
	data, err := storage.ReadAll(ctx, d.store, versionName(ref.Version), maxMetadataFile)
	if err != nil {
		return nil, fmt.Errorf("read Iceberg metadata: %w", err)
	}
	return data, nil
}

// Swap implements Target. The metadata must be unique to the caller; the ids in the names of its manifests make it so.
// A hint that could not be written is no error: the version is published, and Current repairs the hint.
func (d *DirTarget) Swap(ctx context.Context, old Ref, metadata []byte) (Ref, error) {
	v := old.Version + 1
	won, err := storage.PutOnce(ctx, d.store, versionName(v), metadata)
	if err != nil {
		return Ref{}, fmt.Errorf("publish Iceberg metadata: %w", err)
	}
	if !won {
		return Ref{}, fmt.Errorf("%w: %s exists", ErrLost, d.store.URL(versionName(v)))
	}
	_ = d.putHint(ctx, v)
	return d.ref(v), nil
}

// Forget implements Target.
func (d *DirTarget) Forget(ctx context.Context, version int) error {
	return d.store.Delete(ctx, versionName(version))
}

// Versions implements Target.
func (d *DirTarget) Versions(ctx context.Context) ([]int, error) {
	var out []int
	for info, err := range d.store.List(ctx, metadataDir) {
		if err != nil {
			return nil, fmt.Errorf("list Iceberg metadata: %w", err)
		}
		if v, ok := parseVersion(info.Name); ok && !info.Dir {
			out = append(out, v)
		}
	}
	return out, nil
}
