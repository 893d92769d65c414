package storage

import (
	"context"
	"iter"
	"strings"
	"time"
)

// subStore is a folder of another store seen as a store.
type subStore struct {
	base   Store
	prefix string // without trailing slash, not empty
}

// Sub returns the names of s below a folder as a store of their own. URL gives the same locations as s does, and
// errors name them. The prefix is checked with every name: a hostile prefix gives ErrBadName on use.
func Sub(s Store, prefix string) Store {
	if prefix == "" {
		return s
	}
	if sub, ok := s.(*subStore); ok {
		return &subStore{base: sub.base, prefix: sub.prefix + "/" + prefix}
	}
	return &subStore{base: s, prefix: prefix}
}

// full makes the name in the underlying store. An empty name gives a trailing slash, which checkName refuses there.
func (s *subStore) full(name string) string { return s.prefix + "/" + name }

func (s *subStore) Open(ctx context.Context, name string) (File, error) {
	return s.base.Open(ctx, s.full(name))
}

// OpenTail implements TailOpener with the underlying store's own, if it has one.
func (s *subStore) OpenTail(ctx context.Context, name string, tail int64) (File, error) {
	return OpenTail(ctx, s.base, s.full(name), tail)
}

func (s *subStore) Create(ctx context.Context, name string) (Upload, error) {
	return s.base.Create(ctx, s.full(name))
}

// PutAll implements AllPutter with the underlying store's own, if it has one.
func (s *subStore) PutAll(ctx context.Context, objects []Object) error {
	full := make([]Object, len(objects))
	for i, o := range objects {
		full[i] = Object{s.full(o.Name), o.Data}
	}
	return PutAll(ctx, s.base, full)
}

func (s *subStore) PutIfAbsent(ctx context.Context, name string, data []byte) error {
	return s.base.PutIfAbsent(ctx, s.full(name), data)
}

// Settle implements Settler with the underlying store's own, if it has one.
func (s *subStore) Settle(ctx context.Context, name string) error {
	return Settle(ctx, s.base, s.full(name))
}

func (s *subStore) Put(ctx context.Context, name string, data []byte) error {
	return s.base.Put(ctx, s.full(name), data)
}

func (s *subStore) Delete(ctx context.Context, name string) error {
	return s.base.Delete(ctx, s.full(name))
}

func (s *subStore) URL(name string) string {
	return s.base.URL(join(s.prefix, name))
}

func (s *subStore) List(ctx context.Context, dir string) iter.Seq2[Info, error] {
	return s.relative(s.base.List(ctx, join(s.prefix, dir)))
}

// Walk implements Walker with the underlying store's own walk, if it has one.
func (s *subStore) Walk(ctx context.Context, dir string) iter.Seq2[Info, error] {
	return s.relative(Walk(ctx, s.base, join(s.prefix, dir)))
}

// ReadAll implements AllReader with the underlying store's own, if it has one.
func (s *subStore) ReadAll(ctx context.Context, name string, limit int64) ([]byte, error) {
	return ReadAll(ctx, s.base, s.full(name), limit)
}

// RemoveTemp implements TempRemover with the underlying store's own, if it has one.
func (s *subStore) RemoveTemp(ctx context.Context, dir string, before time.Time) (int, error) {
	return RemoveTemp(ctx, s.base, join(s.prefix, dir), before)
}

// relative takes the prefix off the names.
func (s *subStore) relative(seq iter.Seq2[Info, error]) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		for info, err := range seq {
			if err == nil {
				info.Name = strings.TrimPrefix(info.Name, s.prefix+"/")
			}
			if !yield(info, err) {
				return
			}
		}
	}
}
