package manifest

import (
	"errors"
	"testing"
	"time"
)

// TestGoldenTags reads the tags that Paimon made.
func TestGoldenTags(t *testing.T) {
	tab := openGolden(t, "pk_tag_branch_consumer")
	tags, err := tab.AllTags(t.Context())
	if err != nil || len(tags) != 2 {
		t.Fatal(tags, err)
	}
	if a := tags[0]; a.Name != "tag-at-1" || a.Snapshot.ID != 1 || a.Retained != 0 || !a.Created.IsZero() {
		t.Errorf("%+v", a)
	}
	if b := tags[1]; b.Name != "tag with ttl" || b.Snapshot.ID != 2 || b.Retained != 315360000*time.Second ||
		!b.Created.Equal(time.Date(2026, 11, 29, 16, 1, 37, 853564558, time.UTC)) {
		t.Errorf("%+v", b)
	}
	if _, err := tab.Tag(t.Context(), "other"); !errors.Is(err, ErrNoTag) || err.Error()[len(err.Error())-22:] != "tag with ttl, tag-at-1" {
		t.Error(err)
	}
}

// FuzzTag: any bytes give a tag or an error of a known kind, and a retention added to a snapshot is read back.
func FuzzTag(f *testing.F) {
	seedFiles(f, "tag/tag-*", "")
	seedFiles(f, "snapshot/snapshot-*", "")
	f.Fuzz(func(t *testing.T, data []byte) {
		tag, err := decodeTag("t", "t", data)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnsupported) {
				t.Fatal(err)
			}
			return
		}
		now := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
		more, err := withRetention(data, now, 90*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		again, err := decodeTag("t", "t", more)
		if err != nil || again.Snapshot.ID != tag.Snapshot.ID || again.Retained != 90*time.Second || !again.Created.Equal(now) {
			t.Fatalf("%v %v", again, err)
		}
	})
}
