package decode

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// SchemaKind is the language of a schema in a registry, spelled as its interface does.
type SchemaKind string

// Languages of schemas.
const (
	AvroSchema     SchemaKind = "AVRO"
	ProtobufSchema SchemaKind = "PROTOBUF"
	JSONSchema     SchemaKind = "JSON"
)

// WriterSchema is the schema that records were written with.
type WriterSchema struct {
	Kind SchemaKind
	Text string
	// References are the schemas that Text refers to, each behind those that it needs itself.
	References []SchemaFile
}

// SchemaFile is a schema that others refer to by a name.
type SchemaFile struct{ Name, Text string }

// ErrNoSchema: the registry does not know the schema.
var ErrNoSchema = errors.New("the registry does not know the schema")

// MissingSchema says that a record cannot be decoded before the schema of this id is known: give it to Schemas and decode
// the record again.
type MissingSchema struct{ ID int }

// Error implements error.
func (e *MissingSchema) Error() string {
	return fmt.Sprintf("the schema of id %d is not known yet", e.ID)
}

// Schemas holds what is known of the schemas by whose ids records begin. Decoders read it, whoever can ask the registry
// fills it. It may be used by several goroutines.
type Schemas struct {
	mu      sync.Mutex
	byID    map[int]WriterSchema
	refused map[int]string
	reader  WriterSchema
	version atomic.Int64 // of reader

	// What Avro's aliases may do (avrorename.go).
	record  string // the name of the first row's record
	mixed   bool   // others have another
	renames map[string]int
}

// Add gives the schema of an id. A registry never changes it.
func (s *Schemas) Add(id int, w WriterSchema) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID == nil {
		s.byID = map[int]WriterSchema{}
	}
	s.byID[id] = w
	delete(s.refused, id)
}

// Refuse lets records of an id be refused, for the reason, until Forget or Add.
func (s *Schemas) Refuse(id int, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused == nil {
		s.refused = map[int]string{}
	}
	s.refused[id] = reason
}

// Forget makes the id unknown again, so that the next record of it asks for its schema.
func (s *Schemas) Forget(id int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.refused, id)
}

// SetReader gives the schema that tells what fields mean that a writer did not have: their default, and by their aliases
// how they were called.
func (s *Schemas) SetReader(w WriterSchema) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reader.Kind != w.Kind || s.reader.Text != w.Text {
		s.reader = w
		s.version.Add(1)
	}
}

// get gives what is known of an id: a schema, or why its records are refused.
func (s *Schemas) get(id int) (w WriterSchema, refused string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w, ok = s.byID[id]; ok {
		return w, "", true
	}
	refused, ok = s.refused[id]
	return w, refused, ok
}

// readerSchema gives the reader's schema; its Text is empty when there is none.
func (s *Schemas) readerSchema() (WriterSchema, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reader, s.version.Load()
}

// framing is the length of what precedes a record's bytes: 0 and the id of its schema, 4 bytes, big endian.
const framing = 5
