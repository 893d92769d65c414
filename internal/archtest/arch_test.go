// Package archtest holds the house rules as tests: which package may import which, how large a file may grow, and what
// must not appear where.
package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/calve-io/calve/"

// mayImport says what each package of ours may import of ours. Tests may import more: they are not checked.
// "*" means anything. The drawing of it is in DESIGN.md.
var mayImport = map[string][]string{
	"schema":              {},
	"schema/schematest":   {"schema"},
	"storage":             {},
	"storage/storagetest": {"storage"},
	"internal/binrow":     {"schema"},
	"internal/archtest":   {},
	"internal/rowjson":    {},
	"internal/changes":    {"schema", "reader", "internal/rowjson"},
	"internal/claim":      {"storage"},
	"internal/kafkaout":   {"manifest", "reader", "ingest", "internal/changes"},
	"internal/config":     {},
	"internal/datafile":   {"schema", "storage", "internal/binrow"},
	"internal/indexfile":  {},
	"internal/lookup":     {"schema", "storage", "internal/datafile", "internal/indexfile", "manifest", "lsm"},
	"internal/predicate":  {"schema"},
	"manifest":            {"schema", "storage", "internal/binrow"},
	"lsm":                 {"schema", "storage", "internal/binrow", "internal/datafile", "internal/indexfile", "manifest"},
	"export":              {"schema", "storage", "internal/binrow", "manifest"},
	"engine":              {"schema", "storage", "internal/binrow", "internal/datafile", "internal/indexfile", "manifest", "lsm", "internal/lookup"},
	"reader":              {"schema", "storage", "internal/binrow", "internal/datafile", "internal/indexfile", "internal/predicate", "internal/rowjson", "manifest", "lsm", "internal/lookup"},
	"ingest/decode":       {"schema"},
	"ingest/registry":     {"ingest/decode"},
	"ingest":              {"schema", "storage", "manifest", "engine", "reader", "ingest/decode"},
	"push":                {},
	"internal/server":     {"schema", "storage", "manifest", "engine", "reader", "export", "ingest", "ingest/decode", "ingest/registry", "internal/changes", "internal/claim", "internal/config"},
	"internal/demo":       {"*"},
	"cmd/calve":           {"*"},
	"bench":               {"*"},
	"bench/dataset":       {"schema"},
	"bench/idle":          {"*"},
	"bench/many":          {"*"},
	"bench/lab":           {"*"},
	"bench/peer":          {"*"},
	"bench/soak":          {"*"},
	"interop":             {"*"},
	"interop/chaos":       {"*"},
	"interop/run":         {"*"},

	"ingest/registry/registrytest": {},
}

// Budgets: a file or function above them needs to be cut.
const (
	maxFileLines = 800
	maxFuncLines = 100
)

type source struct {
	path string // from the repository's root, slashes
	pkg  string
	file *ast.File
	text []byte
	fset *token.FileSet
}

func (s source) test() bool { return strings.HasSuffix(s.path, "_test.go") }

func sources(t *testing.T) []source {
	t.Helper()
	root := filepath.Join("..", "..")
	var out []source
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := filepath.ToSlash(strings.TrimPrefix(strings.TrimPrefix(path, root), string(filepath.Separator)))
		if d.IsDir() {
			if base := d.Name(); rel != "" && (strings.HasPrefix(base, ".") || base == "testdata" || base == "bin" || rel == "interop/tools") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, rel, text, parser.ParseComments)
		if err != nil {
			return err
		}
		dir := ""
		if i := strings.LastIndexByte(rel, '/'); i >= 0 {
			dir = rel[:i]
		}
		out = append(out, source{path: rel, pkg: dir, file: f, text: text, fset: fset})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 50 {
		t.Fatalf("found only %d Go files: the walk is broken", len(out))
	}
	return out
}

func TestImportsGoOneWay(t *testing.T) {
	for _, s := range sources(t) {
		allowed, known := mayImport[s.pkg]
		if !known {
			t.Errorf("%s: package %q is not in the table of packages; say what it may import", s.path, s.pkg)
			continue
		}
		if s.test() || slices.Contains(allowed, "*") {
			continue
		}
		for _, imp := range s.file.Imports {
			path := strings.Trim(imp.Path.Value, `"`)
			if ours, ok := strings.CutPrefix(path, module); ok && !slices.Contains(allowed, ours) {
				t.Errorf("%s imports %s; %s may import %v", s.path, ours, s.pkg, allowed)
			}
		}
	}
}

func TestFilesAndFunctionsStaySmall(t *testing.T) {
	for _, s := range sources(t) {
		if n := strings.Count(string(s.text), "\n"); n > maxFileLines {
			t.Errorf("%s has %d lines, at most %d", s.path, n, maxFileLines)
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || s.test() {
				continue
			}
			if n := s.fset.Position(f.End()).Line - s.fset.Position(f.Pos()).Line + 1; n > maxFuncLines {
				t.Errorf("%s: %s has %d lines, at most %d", s.path, f.Name.Name, n, maxFuncLines)
			}
		}
	}
}

// hidden lists calls that would hide time and chance from tests: below cmd they are parameters.
var hidden = []string{"time.Now()", "time.After(", "time.Sleep(", "rand.Int", "uuid.New", "os.Exit(", "log.Fatal"}

func TestTimeAndChanceAreParameters(t *testing.T) {
	for _, s := range sources(t) {
		if s.test() || slices.Contains(mayImport[s.pkg], "*") || s.pkg == "storage/storagetest" {
			continue
		}
		for n, line := range strings.Split(string(s.text), "\n") {
			code, _, _ := strings.Cut(line, "//")
			for _, h := range hidden {
				if strings.Contains(code, h) {
					t.Errorf("%s:%d: %s: take it as a parameter", s.path, n+1, h)
				}
			}
		}
	}
}

func TestExportedNamesAreDocumented(t *testing.T) {
	for _, s := range sources(t) {
		if s.test() || s.file.Name.Name == "main" {
			continue
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Name.IsExported() && f.Doc == nil && exportedReceiver(f) {
				t.Errorf("%s: %s has no comment", s.path, f.Name.Name)
			}
		}
	}
}

// exportedReceiver reports whether a function is seen outside its package; Len, Less and Swap explain themselves.
func exportedReceiver(f *ast.FuncDecl) bool {
	if f.Recv == nil {
		return true
	}
	t := f.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if ix, ok := t.(*ast.IndexExpr); ok {
		t = ix.X
	}
	id, ok := t.(*ast.Ident)
	return ok && id.IsExported()
}
