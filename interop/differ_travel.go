//go:build interop

package interop

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/calve-io/calve/reader"
)

// snapshotFile is what the suite itself reads of a snapshot.
type snapshotFile struct {
	TimeMillis int64
	Watermark  *int64
}

// snapshotFile reads a snapshot of a table.
func (p *Place) snapshotFile(table string, id int64) (s snapshotFile, err error) {
	text, err := os.ReadFile(filepath.Join(p.folder(table), "snapshot", fmt.Sprintf("snapshot-%d", id)))
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	return s, err
}

// travel is a read of an older state, in the words of both sides.
type travel struct {
	how   string // what is asked for: a snapshot, a tag, …
	java  map[string]string
	calve reader.Query
	was   *Rows // the state as it was agreed when it was the latest; nil: not known
}

// travels chooses older states: snapshots, a tag, a time and a watermark.
func (p *player) travels(rng *rand.Rand, table string, ids []int64) ([]travel, error) {
	var out []travel
	for _, id := range pickSome(rng, ids, 2) {
		out = append(out, travel{"snapshot", map[string]string{"scan.snapshot-id": fmt.Sprint(id)}, reader.Query{Snapshot: id}, p.states[id]})
	}
	for _, tag := range pickSome(rng, slices.Sorted(maps.Keys(p.tags)), 1) {
		out = append(out, travel{"tag", map[string]string{"scan.tag-name": tag}, reader.Query{Tag: tag}, p.tags[tag]})
	}
	if len(ids) == 0 || rng.IntN(3) > 0 {
		return out, nil
	}
	files := make([]snapshotFile, len(ids))
	for i, id := range ids {
		var err error
		if files[i], err = p.place.snapshotFile(table, id); err != nil {
			return nil, err
		}
	}
	if t, ok := p.timeTravel(rng, ids, files); ok {
		out = append(out, t)
	}
	if t, ok := p.watermarkTravel(rng, ids, files); ok {
		out = append(out, t)
	}
	return out, nil
}

// timeTravel asks for a time near that of a snapshot, or for one in the future. Of several snapshots of the very time Java
// takes the one that its search meets (`SnapshotManager.earlierOrEqualTimeMills`): only one may have it.
func (p *player) timeTravel(rng *rand.Rand, ids []int64, files []snapshotFile) (travel, bool) {
	at := max(files[0].TimeMillis, files[rng.IntN(len(files))].TimeMillis+int64(rng.IntN(3))-1)
	if rng.IntN(5) == 0 {
		at += 1e10
	}
	id, same := ids[0], 0
	for i := range ids {
		if files[i].TimeMillis <= at {
			id = ids[i]
		}
		if files[i].TimeMillis == at {
			same++
		}
	}
	return travel{"timestamp", map[string]string{"scan.timestamp-millis": fmt.Sprint(at)}, reader.Query{At: time.UnixMilli(at)}, p.states[id]}, same < 2
}

// watermarkTravel asks for a watermark that a snapshot has or passes. Of several snapshots with the very watermark that is
// asked for, Java takes the one that its search meets (`SnapshotManager.laterOrEqualWatermark`): only one may have it.
func (p *player) watermarkTravel(rng *rand.Rand, ids []int64, files []snapshotFile) (travel, bool) {
	have := map[int64]int{}
	for _, f := range files {
		if f.Watermark != nil {
			have[*f.Watermark]++
		}
	}
	if len(have) == 0 || files[len(files)-1].Watermark == nil {
		return travel{}, false
	}
	all := slices.Sorted(maps.Keys(have))
	mark := all[rng.IntN(len(all))]
	if have[mark] > 1 || rng.IntN(2) == 0 {
		mark--
	}
	if have[mark] > 1 {
		return travel{}, false
	}
	for i, f := range files {
		if f.Watermark != nil && *f.Watermark >= mark {
			return travel{"watermark", map[string]string{"scan.watermark": fmt.Sprint(mark)}, reader.Query{Watermark: &mark}, p.states[ids[i]]}, true
		}
	}
	return travel{}, false
}

// expectExpired says which snapshot is the first one after an expiry (`ExpireSnapshotsImpl`): no snapshot here is younger
// than the shortest time that a history has, and none older than any other. There is a snapshot.
func (p *player) expectExpired(ids []int64) int64 {
	number := func(option string, unset int64) (n int64) {
		n, err := strconv.ParseInt(p.option(option, ""), 10, 64)
		if err != nil {
			n = unset
		}
		return n
	}
	first, latest := ids[0], ids[len(ids)-1]
	kept := max(first, latest-number("snapshot.num-retained.max", 1<<31-1)+1)
	until := min(latest-number("snapshot.num-retained.min", 10)+1, first+number("snapshot.expire.limit", 50))
	for _, next := range p.consumers {
		until = min(until, next)
	}
	if p.option("snapshot.time-retained", "1 h") != "1 ms" {
		until = min(until, kept)
	}
	return max(first, until)
}
