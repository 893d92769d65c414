package manifest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path"
	"slices"
	"strings"

	"github.com/calve-io/calve/storage"
)

const branchPrefix = "branch/branch-"

// OpenBranch gives a branch of the table in the store's root, for reading: Commit and Expire refuse it. A branch has its
// own schemas, snapshots, tags and consumers in `branch/branch-NAME/`; manifests, index files and data files are those of
// the main branch's folders (`utils.BranchManager`, paimon-format §16).
func OpenBranch(store storage.Store, branch string, env Env) (*Table, error) {
	if err := checkFileName(branch); err != nil {
		return nil, fmt.Errorf("branch: %w", err)
	}
	if branch == "main" {
		return Open(store, env), nil
	}
	t := Open(&branchStore{Store: store, dir: branchPrefix + branch + "/"}, env)
	t.branch = branch
	return t, nil
}

// Branches lists the names of the table's branches besides main.
func (t *Table) Branches(ctx context.Context) ([]string, error) {
	var names []string
	for info, err := range t.store.List(ctx, "branch") {
		if err != nil {
			return nil, fmt.Errorf("list branches: %w", err)
		}
		if name, ok := strings.CutPrefix(path.Base(info.Name), "branch-"); ok && info.Dir {
			names = append(names, name)
		}
	}
	return names, nil
}

// Branch is the name of the branch that was opened, "main" for the main one.
func (t *Table) Branch() string {
	if t.branch == "" {
		return "main"
	}
	return t.branch
}

// mainOnly refuses to change a branch.
func (t *Table) mainOnly() error {
	if t.branch == "" {
		return nil
	}
	return fmt.Errorf("%w: calve reads branches but changes only the main branch, not %q", ErrUnsupported, t.branch)
}

// branchStore gives a branch's view of a table's folder. It cannot be written to.
type branchStore struct {
	storage.Store
	dir string // of the branch, with a slash at its end
}

// ownFolders are those that each branch has for itself.
var ownFolders = []string{"schema", "snapshot", "changelog", "tag", "consumer"}

// name maps a name into the branch's folder.
func (b *branchStore) name(name string) string {
	first, _, _ := strings.Cut(name, "/")
	if slices.Contains(ownFolders, first) {
		return b.dir + name
	}
	return name
}

// Open opens an object of the branch or of the main folders.
func (b *branchStore) Open(ctx context.Context, name string) (storage.File, error) {
	return b.Store.Open(ctx, b.name(name))
}

// ReadAll implements storage.AllReader.
func (b *branchStore) ReadAll(ctx context.Context, name string, limit int64) ([]byte, error) {
	return storage.ReadAll(ctx, b.Store, b.name(name), limit)
}

// URL is where the object lies.
func (b *branchStore) URL(name string) string { return b.Store.URL(b.name(name)) }

// List lists a folder, with names as they were asked for.
func (b *branchStore) List(ctx context.Context, dir string) iter.Seq2[storage.Info, error] {
	mapped := b.name(dir)
	return func(yield func(storage.Info, error) bool) {
		for info, err := range b.Store.List(ctx, mapped) {
			if mapped != dir {
				info.Name = strings.TrimPrefix(info.Name, b.dir)
			}
			if !yield(info, err) {
				return
			}
		}
	}
}

var errBranchReadOnly = errors.New("branches are opened for reading only")

func (b *branchStore) refuse(name string) error {
	return fmt.Errorf("%s: %w: %w", b.URL(name), storage.ErrReadOnly, errBranchReadOnly)
}

// Create refuses.
func (b *branchStore) Create(_ context.Context, name string) (storage.Upload, error) {
	return nil, b.refuse(name)
}

// PutIfAbsent refuses.
func (b *branchStore) PutIfAbsent(_ context.Context, name string, _ []byte) error {
	return b.refuse(name)
}

// Put refuses.
func (b *branchStore) Put(_ context.Context, name string, _ []byte) error { return b.refuse(name) }

// Delete refuses.
func (b *branchStore) Delete(_ context.Context, name string) error { return b.refuse(name) }
