package ingest

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
)

// Snapshot properties in which a pipeline keeps its position. They are part of the snapshot that publishes the rows up
// to that position.
const (
	PropKind     = "calve.source.kind"     // "kafka", "lines" or "file"
	PropCluster  = "calve.source.cluster"  // Kafka: cluster id
	PropTopic    = "calve.source.topic"    // Kafka: topic; lines: name of the input
	PropTopicID  = "calve.source.topic-id" // Kafka: topic id (UUID); a re-created topic has another
	PropOffsets  = "calve.source.offsets"  // Kafka: {"partition": next offset to read}
	PropEpochs   = "calve.source.epochs"   // Kafka: {"partition": leader epoch of the last record read}
	PropRun      = "calve.source.run"      // lines: the run, or the job whose runs go on with each other
	PropLine     = "calve.source.line"     // lines, files: number of lines or records read
	PropBytes    = "calve.source.bytes"    // lines: bytes read; files: their size
	PropChecksum = "calve.source.checksum" // lines: CRC-32C of these bytes; files: of their beginning and end
	PropSeen     = "calve.source.seen"     // Kafka: positions of events in their source's log, to tell repeats
	PropRecords  = "calve.source.records"  // records read since the pipeline began
	PropRejected = "calve.source.rejected" // records refused since the pipeline began
)

const (
	kindKafka = "kafka"
	kindLines = "lines"
	kindFile  = "file"
)

// position is how far a Kafka pipeline came, and of what it is the position.
type position struct {
	cluster, topic, topicID string
	next                    map[int32]int64 // the next offset to read
	epoch                   map[int32]int32 // leader epoch of the last record; absent: unknown
	seen                    string          // what the decoder knows of events before, to tell repeats
	records, rejected       int64
}

// properties gives the form in which the position is stored.
func (p *position) properties() map[string]string {
	m := map[string]string{PropKind: kindKafka, PropTopic: p.topic, PropOffsets: encodeMap(p.next),
		PropRecords: strconv.FormatInt(p.records, 10), PropRejected: strconv.FormatInt(p.rejected, 10)}
	if p.cluster != "" {
		m[PropCluster] = p.cluster
	}
	if p.topicID != "" {
		m[PropTopicID] = p.topicID
	}
	if p.seen != "" {
		m[PropSeen] = p.seen
	}
	if len(p.epoch) > 0 {
		m[PropEpochs] = encodeMap(p.epoch)
	}
	return m
}

// encodeMap writes the map as JSON with sorted keys.
func encodeMap[V int32 | int64](m map[int32]V) string {
	text := make(map[string]V, len(m))
	for k, v := range m {
		text[strconv.Itoa(int(k))] = v
	}
	b, err := json.Marshal(text)
	if err != nil { // cannot happen: keys are strings, values integers
		return "{}"
	}
	return string(b)
}

// parsePosition reads what properties stored. ok is false when they hold no position at all.
func parsePosition(props map[string]string) (p position, ok bool, err error) {
	switch kind := props[PropKind]; kind {
	case "":
		return p, false, nil
	case kindKafka:
	default:
		return p, false, fmt.Errorf("%w: the last snapshot of this job holds the position of a %q source; use another job name for Kafka", ErrSourceChanged, kind)
	}
	p = position{seen: props[PropSeen], cluster: props[PropCluster], topic: props[PropTopic], topicID: props[PropTopicID],
		next: map[int32]int64{}, epoch: map[int32]int32{}}
	if err := parseMap(props, PropOffsets, &p.next); err != nil {
		return p, false, err
	}
	if _, given := props[PropEpochs]; given {
		if err := parseMap(props, PropEpochs, &p.epoch); err != nil {
			return p, false, err
		}
	}
	for part, next := range p.next {
		if part < 0 || next < 0 {
			return p, false, fmt.Errorf("snapshot property %s: partition %d has offset %d", PropOffsets, part, next)
		}
	}
	if p.records, err = parseCount(props, PropRecords); err != nil {
		return p, false, err
	}
	p.rejected, err = parseCount(props, PropRejected)
	return p, err == nil, err
}

func parseMap[V int32 | int64](props map[string]string, key string, out *map[int32]V) error {
	if err := json.Unmarshal([]byte(props[key]), out); err != nil || *out == nil {
		return fmt.Errorf("snapshot property %s is no map of partitions: %q (%w)", key, props[key], err)
	}
	return nil
}

func parseCount(props map[string]string, key string) (int64, error) {
	s, given := props[key]
	if !given {
		return 0, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("snapshot property %s is no count: %q", key, s)
	}
	return n, nil
}

// offsets gives a copy of the next offsets.
func (p *position) offsets() map[int32]int64 { return maps.Clone(p.next) }
