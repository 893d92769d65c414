//go:build interop

package interop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/calve-io/calve/ingest"
	"github.com/calve-io/calve/storage"
)

func init() { RegisterScenario(Scenario{Name: "kill", Run: judgeKills}) }

const (
	kills          = 60
	killPartitions = 4
	killKeys       = 5000
	killRate       = 3000 // events a second
)

var (
	killAppend = []Column{{"k", "INT"}, {"v", "STRING"}, {"n", "BIGINT"}, {"part", "INT"}, {"off", "BIGINT"}}
	killKeyed  = []Column{{"k", "INT NOT NULL"}, {"v", "STRING"}, {"n", "BIGINT"}, {"off", "BIGINT"}}
)

// judgeKills kills `calve serve` with SIGKILL at random moments while it ingests one topic of a real broker into a
// table without key and one with, then lets it finish. Every event must be in the one exactly once, and the other
// must hold what folding the events gives.
func judgeKills(ctx context.Context, l *Lab, report *Report) {
	k := &killing{lab: l, place: l.Local(), rng: rand.New(rand.NewPCG(l.Seed, 7))}
	var ran error
	report.Always("kill", "kafka", func() error { ran = k.run(ctx); return ran })
	if ran != nil {
		return
	}
	report.Check("kill", "calve", func() error {
		if err := k.check(ctx, calveReader{k.place.Calve}); err != nil {
			return err
		}
		for _, table := range []string{"kill.appended", "kill.keyed"} {
			if err := k.place.Verify(ctx, table); err != nil {
				return err
			}
		}
		return nil
	})
	for _, j := range judges {
		reader, ok := j.Judge.(PaimonReader)
		if !ok {
			continue
		}
		report.Check("kill", j.Name(), func() error {
			if err := j.ready(ctx, l); err != nil {
				return err
			}
			if err := k.check(ctx, reader); err != nil {
				return err
			}
			java, ok := j.Judge.(*paimonJava)
			if !ok {
				return nil
			}
			return errors.Join(java.checkFiles(ctx, k.table("kill.appended")), java.checkFiles(ctx, k.table("kill.keyed")))
		})
	}
}

type killing struct {
	lab      *Lab
	place    *Place
	rng      *rand.Rand
	config   string
	listen   string
	events   *events
	progress int // kills after which the tables had grown
}

func (k *killing) table(name string) PaimonTable {
	return PaimonTable{Warehouse: k.place.Warehouse, Name: name}
}

func (k *killing) run(ctx context.Context) error {
	kafka, err := k.lab.Kafka(ctx)
	if err != nil {
		return err
	}
	if k.events, err = startEvents(ctx, kafka, k.lab.Seed); err != nil {
		return err
	}
	if err := k.configure(kafka); err != nil {
		return err
	}
	if err := k.killAll(ctx); err != nil {
		return errors.Join(err, k.events.Stop())
	}
	if err := k.events.Stop(); err != nil {
		return err
	}
	if err := k.finish(ctx); err != nil {
		return err
	}
	k.lab.Log("kill: %d events, %d of %d kills came after progress, %d snapshots of the append table", k.events.Count(), k.progress, kills,
		k.snapshot("kill.appended"))
	if k.progress < kills/4 {
		return fmt.Errorf("only %d of %d lives of calve committed something: the test has shown too little", k.progress, kills)
	}
	return k.checkDeadLetters(ctx)
}

func (k *killing) configure(kafka *Kafka) error {
	port, err := FreePort()
	if err != nil {
		return err
	}
	k.listen = fmt.Sprintf("127.0.0.1:%d", port)
	words := func(columns []Column) string {
		var parts []string
		for _, c := range columns {
			parts = append(parts, c.Name+" "+c.Type)
		}
		return strings.Join(parts, ", ")
	}
	text := fmt.Sprintf(`warehouse: %s
listen: %s
pipelines:
  - name: appended
    table: kill.appended
    kafka: {brokers: ["%s"], topic: %s, fields: {part: partition, off: offset}}
    format: {op: "-"}
    create:
      columns: %q
      options: {bucket: "2", bucket-key: k, num-sorted-run.compaction-trigger: "3"}
    commit-interval: 100ms
  - name: keyed
    table: kill.keyed
    kafka: {brokers: ["%[3]s"], topic: %[4]s, fields: {off: offset}}
    create:
      columns: %[6]q
      primary-key: [k]
      options: {bucket: "2", num-sorted-run.compaction-trigger: "3"}
    commit-interval: 100ms
`, k.place.Warehouse, k.listen, kafka.Address, killTopic, words(killAppend), words(killKeyed))
	k.config = filepath.Join(k.lab.Data, "kill.yaml")
	return os.WriteFile(k.config, []byte(text), 0o644)
}

func (k *killing) start() (*Process, error) {
	return k.lab.Start("kill-serve", exec.Command(k.lab.Binary, "serve", "-c", k.config))
}

func (k *killing) snapshot(table string) int64 {
	id, err := k.place.latestSnapshot(table)
	if err != nil {
		return 0 // the folder is being made
	}
	return id
}

// killAll gives calve many short lives. Short ones end in its start, longer ones in commits, compactions and exports.
func (k *killing) killAll(ctx context.Context) error {
	for i := range kills {
		before := k.snapshot("kill.appended") + k.snapshot("kill.keyed")
		p, err := k.start()
		if err != nil {
			return err
		}
		life := time.Duration(50+k.rng.IntN(700)) * time.Millisecond
		if i%2 == 1 {
			life = time.Duration(700+k.rng.IntN(1800)) * time.Millisecond
		}
		select {
		case <-time.After(life):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := p.Alive(); err != nil { // it must live until it is killed, however it was killed before
			return fmt.Errorf("life %d of %d: %w", i+1, kills, err)
		}
		p.Kill()
		if k.snapshot("kill.appended")+k.snapshot("kill.keyed") > before {
			k.progress++
		}
	}
	return nil
}

// finish lets calve read the rest of the topic and end in order.
func (k *killing) finish(ctx context.Context) error {
	p, err := k.start()
	if err != nil {
		return err
	}
	want := strconv.Itoa(k.events.Good())
	err = p.WaitReady(ctx, 2*time.Minute, func(ctx context.Context) error {
		have, err := k.place.Run(ctx, nil, "scan", "kill.appended", "--count")
		if err == nil && strings.TrimSpace(string(have)) != want {
			err = fmt.Errorf("%s rows, expected %s", strings.TrimSpace(string(have)), want)
		}
		if err == nil {
			err = k.checkKeyed(ctx, calveReader{k.place.Calve})
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := p.Stop(30 * time.Second); err != nil {
		return fmt.Errorf("serve after SIGTERM: %w", err)
	}
	return nil
}

func (k *killing) check(ctx context.Context, reader PaimonReader) error {
	got, err := reader.Read(ctx, k.table("kill.appended"), 0, killAppend)
	if err != nil {
		return err
	}
	positions := map[string]bool{}
	for _, row := range got.Cells {
		positions[row[3].Text+"/"+row[4].Text] = true
	}
	if len(positions) != len(got.Cells) {
		return fmt.Errorf("kill.appended: %d rows have %d distinct (partition, offset)", len(got.Cells), len(positions))
	}
	want, err := k.events.Appended()
	if err == nil {
		err = want.Compare(got)
	}
	if err != nil {
		return fmt.Errorf("kill.appended: %w", err)
	}
	return k.checkKeyed(ctx, reader)
}

func (k *killing) checkKeyed(ctx context.Context, reader PaimonReader) error {
	got, err := reader.Read(ctx, k.table("kill.keyed"), 0, killKeyed)
	if err != nil {
		return err
	}
	want, err := k.events.Keyed()
	if err == nil {
		err = want.Compare(got)
	}
	if err != nil {
		return fmt.Errorf("kill.keyed: %w", err)
	}
	return nil
}

// checkDeadLetters looks for every broken record in the dead letters of both tables, once.
func (k *killing) checkDeadLetters(ctx context.Context) error {
	for _, table := range []string{"kill.appended", "kill.keyed"} {
		store, err := storage.NewLocal(k.place.folder(table + "__dead"))
		if err != nil {
			return err
		}
		found := map[string]bool{}
		for letter, err := range ingest.ReadDeadLetters(ctx, store, ingest.LetterQuery{Bare: true}, ingest.Env{Now: time.Now, After: time.After, NewID: uuid.NewString, Rand: rand.Uint64, Log: slog.New(slog.DiscardHandler)}) {
			if err != nil {
				return fmt.Errorf("dead letters of %s: %w", table, err)
			}
			position := fmt.Sprint(letter.Partition, "/", letter.Offset)
			if found[position] {
				return fmt.Errorf("the broken record at %s is twice in the dead letters of %s", position, table)
			}
			found[position] = true
		}
		want := k.events.Broken()
		for _, position := range want {
			if !found[position] {
				return fmt.Errorf("the broken record at %s is not in the dead letters of %s", position, table)
			}
		}
		if len(found) != len(want) {
			return fmt.Errorf("%d dead letters of %s, expected %d", len(found), table, len(want))
		}
	}
	return nil
}
