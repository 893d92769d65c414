//go:build interop

package interop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Judge is one peer: a column of the table.
type Judge interface {
	Name() string
	// Start fetches and starts the peer. It is called once, before the first check.
	Start(ctx context.Context, l *Lab) error
	// Check judges a case that calve has played.
	Check(ctx context.Context, s *Subject) error
	// Applies says why the judge has nothing to say about a case, or nothing.
	Applies(c *Case) (whyNot string)
}

// PaimonReader reads Paimon tables.
type PaimonReader interface {
	Read(ctx context.Context, t PaimonTable, snapshot int64, columns []Column) (*Rows, error)
}

// IcebergReader reads Iceberg tables.
type IcebergReader interface {
	Routes() []Route
	Describe(ctx context.Context, t IcebergTable) (IcebergDescription, error)
	Read(ctx context.Context, t IcebergTable, snapshot int64, columns []Column) (*Rows, error)
	Count(ctx context.Context, t IcebergTable, column Column, kind Kind, value Cell) (int64, error)
	Profile(ctx context.Context, t IcebergTable, like *Rows) (Profile, error)
}

// checkLimit bounds one field of the table: a peer that hangs fails it.
const checkLimit = 8 * time.Minute

type registered struct {
	Judge
	starting once[struct{}]
}

func (r *registered) ready(ctx context.Context, l *Lab) error {
	_, err := r.starting.get(func() (struct{}, error) {
		start := time.Now()
		err := r.Start(ctx, l)
		if err == nil {
			l.Log("%s is ready (%.1fs)", r.Name(), time.Since(start).Seconds())
		}
		return struct{}{}, err
	})
	if err != nil {
		return fmt.Errorf("%s does not start: %w", r.Name(), err)
	}
	return nil
}

var judges []*registered

// judgeOrder is the order of the table's columns; a judge that changes the table comes last.
var judgeOrder = []string{"calve", "pypaimon", "paimon-java", "duckdb", "pyiceberg", "spark", "trino", "java-writes"}

// RegisterJudge adds a peer; called from init.
func RegisterJudge(j Judge) {
	judges = append(judges, &registered{Judge: j})
	slices.SortStableFunc(judges, func(a, b *registered) int { return rank(a.Name()) - rank(b.Name()) })
}

func rank(name string) int {
	if i := slices.Index(judgeOrder, name); i >= 0 {
		return i
	}
	return len(judgeOrder) - 2 // unknown ones before those that change the table
}

// judgeAll lets every judge check a subject: those that only read side by side, those that write after them.
func judgeAll(ctx context.Context, l *Lab, report *Report, s *Subject) {
	one := func(j *registered) {
		if why := j.Applies(s.Case); why != "" {
			report.Skip(s.Case.Name, j.Name(), why)
			return
		}
		report.Check(s.Case.Name, j.Name(), func() error {
			if err := j.ready(ctx, l); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeoutCause(ctx, checkLimit, errors.New("the check took too long"))
			defer cancel()
			return j.Check(ctx, s)
		})
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, 3) // the peers wait on each other's processes more than on the cores
	for _, j := range judges {
		if _, writes := j.Judge.(writer); writes {
			continue
		}
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			one(j)
		})
	}
	wg.Wait()
	for _, j := range judges {
		if _, writes := j.Judge.(writer); writes {
			one(j)
		}
	}
}

// writer marks judges that change the table.
type writer interface{ Writes() }
