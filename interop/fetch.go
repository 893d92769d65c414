//go:build interop

package interop

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Cache keeps what the suite fetches: DIR/<what>, with a stamp that names the pinned content, so that a change
// of a version fetches again and a broken fetch is never taken for a whole one.
type Cache struct {
	Dir  string
	Log  func(format string, args ...any)
	mu   sync.Mutex
	once map[string]*once[string]
}

// dir fetches into DIR/name by calling fill with an empty folder, unless it is there with this very spec.
func (c *Cache) dir(name, spec string, fill func(dir string) error) (string, error) {
	c.mu.Lock()
	if c.once == nil {
		c.once = map[string]*once[string]{}
	}
	r := c.once[name]
	if r == nil {
		r = &once[string]{}
		c.once[name] = r
	}
	c.mu.Unlock()
	return r.get(func() (string, error) { return c.fill(name, spec, fill) })
}

func (c *Cache) fill(name, spec string, fill func(dir string) error) (string, error) {
	dir := filepath.Join(c.Dir, name)
	sum := sha256.Sum256([]byte(spec))
	stamp := hex.EncodeToString(sum[:])
	stampFile := dir + ".stamp"
	complete := func() bool {
		have, err := os.ReadFile(stampFile)
		return err == nil && string(have) == stamp
	}
	if complete() {
		return dir, nil
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil { // who asks first makes the cache
		return "", err
	}
	// One fetch at a time, over all processes: the clients unpack and compile on all cores.
	lock, err := lockFile(filepath.Join(c.Dir, "fetch.lock"), true)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if complete() {
		return dir, nil
	}
	c.Log("fetching %s", name)
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if err := fill(dir); err != nil {
		return "", fmt.Errorf("fetch %s: %w", name, err)
	}
	return dir, os.WriteFile(stampFile, []byte(stamp), 0o644)
}

const dependencyPlugin = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:"

// Jars fetches Maven artifacts ("group:artifact:version") with what they need, and gives their folder.
func (c *Cache) Jars(ctx context.Context, name string, artifacts ...string) (string, error) {
	spec := strings.Join(artifacts, "\n")
	return c.dir(filepath.Join("jars", name), spec, func(dir string) error {
		pom, err := pomOf(name, artifacts)
		if err != nil {
			return err
		}
		work, err := os.MkdirTemp(c.Dir, "pom-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(work)
		file := filepath.Join(work, "pom.xml")
		if err := os.WriteFile(file, pom, 0o644); err != nil {
			return err
		}
		return run(ctx, work, nil, "mvn", "-B", "-q", "-f", file, dependencyPlugin+"copy-dependencies",
			"-DincludeScope=runtime", "-DoutputDirectory="+dir)
	})
}

func pomOf(name string, artifacts []string) ([]byte, error) {
	type dependency struct {
		GroupID    string `xml:"groupId"`
		ArtifactID string `xml:"artifactId"`
		Version    string `xml:"version"`
	}
	project := struct {
		XMLName      xml.Name     `xml:"http://maven.apache.org/POM/4.0.0 project"`
		ModelVersion string       `xml:"modelVersion"`
		GroupID      string       `xml:"groupId"`
		ArtifactID   string       `xml:"artifactId"`
		Version      string       `xml:"version"`
		Dependencies []dependency `xml:"dependencies>dependency"`
	}{ModelVersion: "4.0.0", GroupID: "calve.interop", ArtifactID: name, Version: "1"}
	for _, a := range artifacts {
		p := strings.Split(a, ":")
		if len(p) != 3 {
			return nil, fmt.Errorf("artifact %q is not group:artifact:version", a)
		}
		project.Dependencies = append(project.Dependencies, dependency{p[0], p[1], p[2]})
	}
	return xml.Marshal(project)
}

// Archive fetches one Maven artifact of type tar.gz, unpacks it and keeps only what keep accepts
// (a path below the archive's top folder; asked for every folder before its content).
func (c *Cache) Archive(ctx context.Context, name, artifact string, keep func(path string) bool) (string, error) {
	return c.dir(name, artifact, func(dir string) error {
		// All of it, although most goes again: files that stay may be hard links to files that go.
		if err := c.unpack(ctx, dir, artifact+":tar.gz", 1); err != nil {
			return err
		}
		return prune(dir, keep)
	})
}

// Flat fetches one Maven artifact of type tar.gz and a classifier, whose archive has no top folder, and unpacks it.
func (c *Cache) Flat(ctx context.Context, name, artifact, classifier string) (string, error) {
	return c.dir(name, artifact+classifier, func(dir string) error {
		return c.unpack(ctx, dir, artifact+":tar.gz:"+classifier, 0)
	})
}

func (c *Cache) unpack(ctx context.Context, dir, artifact string, strip int) error {
	work, err := os.MkdirTemp(c.Dir, "archive-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	err = run(ctx, work, nil, "mvn", "-B", "-q", dependencyPlugin+"copy", "-Dartifact="+artifact, "-DoutputDirectory="+work)
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(work, "*.tar.gz"))
	if err != nil || len(files) != 1 {
		return fmt.Errorf("%d archives came with %s (%w)", len(files), artifact, err)
	}
	return run(ctx, dir, nil, "tar", "-xzf", files[0], fmt.Sprintf("--strip-components=%d", strip))
}

func prune(dir string, keep func(path string) bool) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil || keep(filepath.ToSlash(rel)) {
			return err
		}
		if err := os.RemoveAll(path); err != nil {
			return err
		}
		if e.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
}

// Venv makes a Python environment with the frozen requirements of a file and gives its python.
func (c *Cache) Venv(ctx context.Context, name, requirements string) (string, error) {
	spec, err := os.ReadFile(requirements)
	if err != nil {
		return "", err
	}
	dir, err := c.dir(filepath.Join("venv", name), string(spec), func(dir string) error {
		if err := run(ctx, dir, nil, "python3", "-m", "venv", dir); err != nil {
			return err
		}
		return run(ctx, dir, nil, filepath.Join(dir, "bin", "pip"), "install", "--quiet", "--no-deps",
			"--disable-pip-version-check", "-r", requirements)
	})
	return filepath.Join(dir, "bin", "python"), err
}

// Classes compiles Java sources, given as patterns, against the jars of a folder and gives the class folder.
func (c *Cache) Classes(ctx context.Context, name, jars string, sources ...string) (string, error) {
	var files []string
	for _, pattern := range sources {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return "", err
		}
		files = append(files, found...)
	}
	spec := jars
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		spec += "\n" + string(text)
	}
	return c.dir(filepath.Join("classes", name), spec, func(dir string) error {
		args := []string{"--release", "17", "-d", dir, "-cp", filepath.Join(jars, "*")}
		return run(ctx, dir, nil, "javac", append(args, files...)...)
	})
}

// Tool builds a program of the module interop/tools and gives the binary.
func (c *Cache) Tool(ctx context.Context, root, pkg string) (string, error) {
	module := filepath.Join(root, "interop", "tools")
	spec, err := os.ReadFile(filepath.Join(module, "go.sum"))
	if err != nil {
		return "", err
	}
	name := filepath.Base(pkg)
	dir, err := c.dir(filepath.Join("tools", name), pkg+"\n"+string(spec), func(dir string) error {
		return run(ctx, module, []string{"CGO_ENABLED=0"}, "go", "build", "-o", filepath.Join(dir, name), pkg)
	})
	return filepath.Join(dir, name), err
}

// Java24 finds a Java program of version 24 or later: by JAVA24_HOME, or in the folder of the system's JVMs.
func Java24(ctx context.Context) (string, error) {
	homes, err := filepath.Glob("/usr/lib/jvm/*")
	if err != nil {
		return "", err
	}
	if home := os.Getenv("JAVA24_HOME"); home != "" {
		homes = []string{home}
	}
	slices.Sort(homes)
	for _, home := range homes {
		java := filepath.Join(home, "bin", "java")
		out, err := exec.CommandContext(ctx, java, "-version").CombinedOutput()
		if err != nil {
			continue
		}
		_, version, _ := strings.Cut(string(out), `version "`)
		major, _, _ := strings.Cut(version, ".")
		major, _, _ = strings.Cut(major, `"`)
		if n, err := strconv.Atoi(major); err == nil && n >= 24 {
			return home, nil
		}
	}
	return "", errors.New("no JDK of version 24 or later, which Trino 476 needs, is under /usr/lib/jvm;" +
		" install one or set JAVA24_HOME to its folder")
}

// run runs a command to its end; its output is part of the error.
func run(ctx context.Context, dir string, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, tailOf(out.Bytes()))
	}
	return nil
}

// tailOf gives the last lines of an output, where the reason mostly is.
func tailOf(out []byte) string {
	const most = 4000
	if len(out) > most {
		out = out[len(out)-most:]
	}
	return string(out)
}
