package export

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"github.com/calve-io/calve/storage"
)

// Names of the REST catalog: which namespaces and tables there are, and lists of them in pages.

const (
	databaseSuffix = ".db"
	// levelSeparator stands between the levels of a namespace in a path, as %1F.
	levelSeparator = "\x1f"
	// pageSize is the length of a page when a client asks for pages without saying how long.
	pageSize = 1000
	// lookers bounds the tables that one listing looks into at once.
	lookers = 16
)

// levels gives the levels of a namespace in the path.
func levels(r *http.Request) []string { return strings.Split(r.PathValue("namespace"), levelSeparator) }

func noNamespace(levels []string) error {
	return apiErrorf(http.StatusNotFound, "NoSuchNamespaceException",
		"namespace %s does not exist: a namespace is a database of the warehouse, with one level", strings.Join(levels, "."))
}

func noTable(r *http.Request) error {
	return apiErrorf(http.StatusNotFound, "NoSuchTableException", "table %s.%s does not exist or was not exported yet; run calve export",
		strings.Join(levels(r), "."), r.PathValue("table"))
}

// plainName says whether a name can be a folder's; others cannot be names of anything here.
func plainName(name string) bool {
	return name != "" && name != "." && name != ".." && utf8.ValidString(name) && !strings.ContainsAny(name, "/\\") &&
		!strings.ContainsFunc(name, func(r rune) bool { return r < 0x20 || r == 0x7f })
}

// folders lists the folders below dir.
func folders(ctx context.Context, s storage.Store, dir string) ([]string, error) {
	var out []string
	for info, err := range s.List(ctx, dir) {
		if err != nil {
			return nil, err
		}
		if info.Dir {
			out = append(out, strings.TrimPrefix(strings.TrimPrefix(info.Name, dir), "/"))
		}
	}
	return out, nil
}

// database gives the folder of the request's namespace, or an error that it does not exist. One look at the first
// entry is enough: folders of object stores exist as long as there is something in them.
func (c *catalog) database(ctx context.Context, r *http.Request) (string, error) {
	l := levels(r)
	if len(l) != 1 || !plainName(l[0]) {
		return "", noNamespace(l)
	}
	dir := l[0] + databaseSuffix
	for _, err := range c.warehouse.List(ctx, dir) {
		if errors.Is(err, storage.ErrBadName) {
			return "", noNamespace(l)
		} else if err != nil {
			return "", err
		}
		return dir, nil
	}
	dbs, err := folders(ctx, c.warehouse, "")
	if err != nil {
		return "", err
	}
	if !slices.Contains(dbs, dir) {
		return "", noNamespace(l)
	}
	return dir, nil
}

// table gives the folder of the request's table, which may not exist.
func (c *catalog) table(r *http.Request) (storage.Store, error) {
	name := r.PathValue("table")
	l := levels(r)
	if len(l) != 1 || !plainName(l[0]) || !plainName(name) {
		return nil, noTable(r)
	}
	return storage.Sub(c.warehouse, l[0]+databaseSuffix+"/"+name), nil
}

// exported says whether a table has Iceberg metadata.
func exported(ctx context.Context, store storage.Store) (bool, error) {
	ref, err := NewDirTarget(store).peek(ctx)
	if errors.Is(err, storage.ErrBadName) {
		return false, nil
	}
	return ref.Version > 0, err
}

func (c *catalog) listNamespaces(_ http.ResponseWriter, r *http.Request) (any, error) {
	if parent := r.URL.Query().Get("parent"); parent != "" {
		r.SetPathValue("namespace", parent)
		if _, err := c.database(r.Context(), r); err != nil {
			return nil, err
		}
		return map[string]any{"namespaces": [][]string{}}, nil
	}
	dirs, err := folders(r.Context(), c.warehouse, "")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, dir := range dirs {
		if name, ok := strings.CutSuffix(dir, databaseSuffix); ok && plainName(name) {
			names = append(names, name)
		}
	}
	names, next, err := page(names, r)
	if err != nil {
		return nil, err
	}
	namespaces := make([][]string, len(names))
	for i, n := range names {
		namespaces[i] = []string{n}
	}
	return withNext(map[string]any{"namespaces": namespaces}, next), nil
}

func (c *catalog) getNamespace(_ http.ResponseWriter, r *http.Request) (any, error) {
	dir, err := c.database(r.Context(), r)
	if err != nil {
		return nil, err
	}
	return map[string]any{"namespace": levels(r), "properties": map[string]string{"location": c.warehouse.URL(dir)}}, nil
}

func (c *catalog) headNamespace(_ http.ResponseWriter, r *http.Request) (any, error) {
	_, err := c.database(r.Context(), r)
	return nil, err
}

// identifier names a table or view.
type identifier struct {
	Namespace []string `json:"namespace"`
	Name      string   `json:"name"`
}

func (c *catalog) listTables(_ http.ResponseWriter, r *http.Request) (any, error) {
	ctx := r.Context()
	dir, err := c.database(ctx, r)
	if err != nil {
		return nil, err
	}
	names, err := folders(ctx, c.warehouse, dir)
	if err != nil {
		return nil, err
	}
	if names, err = c.onlyExported(ctx, dir, names); err != nil {
		return nil, err
	}
	names, next, err := page(names, r)
	if err != nil {
		return nil, err
	}
	ids := make([]identifier, len(names))
	for i, n := range names {
		ids[i] = identifier{Namespace: levels(r), Name: n}
	}
	return withNext(map[string]any{"identifiers": ids}, next), nil
}

// onlyExported leaves out the tables without Iceberg metadata.
func (c *catalog) onlyExported(ctx context.Context, dir string, names []string) ([]string, error) {
	found := make([]bool, len(names))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(lookers)
	for i, n := range names {
		g.Go(func() (err error) {
			found[i], err = exported(gctx, storage.Sub(c.warehouse, dir+"/"+n))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	var out []string
	for i, n := range names {
		if found[i] && plainName(n) {
			out = append(out, n)
		}
	}
	return out, nil
}

func (c *catalog) headTable(_ http.ResponseWriter, r *http.Request) (any, error) {
	store, err := c.table(r)
	if err != nil {
		return nil, err
	}
	ok, err := exported(r.Context(), store)
	if err == nil && !ok {
		err = noTable(r)
	}
	return nil, err
}

// listViews answers that there are none.
func (c *catalog) listViews(_ http.ResponseWriter, r *http.Request) (any, error) {
	if _, err := c.database(r.Context(), r); err != nil {
		return nil, err
	}
	return map[string]any{"identifiers": []identifier{}}, nil
}

func (c *catalog) noView(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, apiErrorf(http.StatusNotFound, "NoSuchViewException", "view %s.%s does not exist: this catalog has no views",
		strings.Join(levels(r), "."), r.PathValue("view"))
}

// page sorts names and cuts out the page that the request asks for. A token is the last name of the page before, so
// pages stay right when names come and go. Without pageToken and pageSize everything is one page.
func page(names []string, r *http.Request) (_ []string, next string, err error) {
	slices.Sort(names)
	q := r.URL.Query()
	if !q.Has("pageToken") && !q.Has("pageSize") {
		return names, "", nil
	}
	size := pageSize
	if s := q.Get("pageSize"); s != "" {
		if size, err = strconv.Atoi(s); err != nil || size < 1 {
			return nil, "", apiErrorf(http.StatusBadRequest, "BadRequestException", "pageSize=%s: it must be a number from 1", s)
		}
	}
	if token := q.Get("pageToken"); token != "" {
		last, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil {
			return nil, "", apiErrorf(http.StatusBadRequest, "BadRequestException", "pageToken=%s is not one of this catalog", token)
		}
		from, found := slices.BinarySearch(names, string(last))
		if found {
			from++
		}
		names = names[from:]
	}
	if len(names) > size {
		names = names[:size]
		next = base64.RawURLEncoding.EncodeToString([]byte(names[size-1]))
	}
	return names, next, nil
}

func withNext(answer map[string]any, next string) map[string]any {
	if next != "" {
		answer["next-page-token"] = next
	}
	return answer
}
