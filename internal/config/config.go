// Package config owns the file that `calve serve` reads: its form, its defaults, and errors that say where and what
// is wrong. The same struct tags give the checks and the JSON schema for editors.
package config

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// Config is the whole file.
type Config struct {
	Warehouse  string     `yaml:"warehouse" doc:"Folder or bucket that holds the tables: file:///path or s3://bucket/prefix." required:"true"`
	S3         S3         `yaml:"s3" doc:"Settings for s3:// warehouses; what is left out comes from AWS_* variables."`
	Listen     string     `yaml:"listen" doc:"Address for status, metrics and the Iceberg REST catalog; empty for none." default:"127.0.0.1:8181"`
	HTTP       HTTP       `yaml:"http" doc:"Who may use /v1 of the listening address, and how."`
	Log        Log        `yaml:"log" doc:"Logging to standard error."`
	Memory     Size       `yaml:"write-memory" doc:"What the rows that wait in write buffers of all pipelines may take together; when it is used up, the fullest buffer is flushed." default:"256mb"`
	Compaction Budget     `yaml:"compaction" doc:"What the compactions of all pipelines may use together."`
	Lookups    Lookups    `yaml:"lookup-cache" doc:"Copies, on local disk, of data files that rows are looked up in."`
	Registry   Registry   `yaml:"registry" doc:"Schema registry of formats whose records name their schema."`
	Share      Share      `yaml:"share" doc:"Several processes with the same pipelines share the tables among them."`
	Pipelines  []Pipeline `yaml:"pipelines" doc:"Streams to write into tables; without any, only the catalog of the warehouse is served."`
}

// Share lets processes share the tables.
type Share struct {
	On  bool     `yaml:"on" doc:"Each table is written by one of the processes that have this key and the same warehouse; tables move when one joins, ends or hangs." default:"false"`
	TTL Duration `yaml:"ttl" doc:"A process that has given no sign of life for this long (1s to 1h) loses its tables to the others." default:"10s"`
}

// Budget bounds the compactions of the whole process.
type Budget struct {
	Workers    int      `yaml:"workers" doc:"Compactions of the whole process that make progress at the same time; those of less than a mebibyte, which mostly wait for storage, go beside them." default:"2"`
	SweepAfter Duration `yaml:"sweep-after" doc:"A bucket without new rows for this long is compacted to the highest level; 0s for never." default:"10m"`
	Rate       Size     `yaml:"rate" doc:"Bytes a second that compactions read, but for those that writers wait for; 0 for no bound." default:"0"`
}

// Lookups says where copies of data files may lie in which rows are found fast.
type Lookups struct {
	Dir  string `yaml:"dir" doc:"Folder on local disk; without it there are none. Compactions look old rows up where the changelog producer is lookup, rows are deleted by vectors, or the first row wins: with copies that costs what changed, not what is there."`
	Size Size   `yaml:"size" doc:"Most that the folder holds; what was not used for longest goes first." default:"4gb"`
	All  bool   `yaml:"all" doc:"Copy what is compacted in other tables with a primary key too, for those who look rows up with the same folder."`
}

// HTTP says who may use the API below /v1, where rows go over the line, and how.
type HTTP struct {
	TokenEnv     string   `yaml:"token-env" doc:"Environment variable that holds the token that clients send as Authorization: Bearer. Without a token /v1 answers on loopback addresses only."`
	TokenFile    string   `yaml:"token-file" doc:"File that holds such tokens, one a line; it is read when the server starts."`
	Certificate  string   `yaml:"certificate" doc:"File with the certificate, in PEM, to speak TLS on the listening address."`
	Key          string   `yaml:"key" doc:"File with the certificate's private key, in PEM."`
	Heartbeat    Duration `yaml:"heartbeat" doc:"How often a stream of changes tells that it is alive while there is nothing to tell." default:"15s"`
	MaxStreams   int      `yaml:"max-streams" doc:"Streams of changes at the same time; who asks for one more is told to come again." default:"1000"`
	WriteTimeout Duration `yaml:"write-timeout" doc:"How long a client may take none of what is written to it before it is cut off." default:"30s"`
}

// S3 holds access to an S3 service.
type S3 struct {
	Endpoint  string `yaml:"endpoint" doc:"URL of the service, for other services than AWS."`
	Region    string `yaml:"region" doc:"Region of the bucket."`
	AccessKey string `yaml:"access-key" doc:"Access key id."`
	SecretKey string `yaml:"secret-key" doc:"Secret access key."`
	PathStyle bool   `yaml:"path-style" doc:"Put the bucket into the path instead of the host name."`
}

// Log says how to log.
type Log struct {
	Level  string `yaml:"level" doc:"Least level to log." enum:"debug,info,warn,error" default:"info"`
	Format string `yaml:"format" doc:"Form of a line." enum:"text,json" default:"text"`
}

// Pipeline is one stream into one table, or many topics, each into a table of its own.
type Pipeline struct {
	Name           string   `yaml:"name" doc:"Name of the job; it must stay the same over restarts." required:"true"`
	Table          string   `yaml:"table" doc:"Table as database.table. With kafka.topics or kafka.topic-pattern each topic has its own: {topic} stands for its name, {1}, {2} and so on for the groups of the pattern; letters become lower-case, and what is no letter, digit or _ becomes _. With {header:NAME} or {field:PATH} each record of the topic chooses its table: see route. PATH is the name of a field of the row, or of several within each other with points between them; of avro, debezium-avro and protobuf as the schema that the record was written with names them." required:"true"`
	Kafka          Kafka    `yaml:"kafka" doc:"Source of the records: topics." optional:"true"`
	Push           *Push    `yaml:"push" doc:"Source of the records, instead of kafka: clients send them over HTTP. {} takes the defaults."`
	Format         Format   `yaml:"format" doc:"Form of a record's value."`
	Route          Route    `yaml:"route" doc:"Which tables records may choose, where the table has {header:NAME} or {field:PATH}. Each table is a job NAME:DATABASE.TABLE."`
	Create         *Create  `yaml:"create" doc:"How to create the table when it does not exist."`
	CommitInterval Duration `yaml:"commit-interval" doc:"The longest that a row waits until it can be read, on a machine that keeps up. As a commit takes time, those of a busy table begin a tenth of the interval, at most 100 ms, sooner than an interval apart (after a late one half of that). One that comes to a quiet table waits 50 ms (a tenth of the interval, if that is less) for others." default:"1s"`
	CommitRows     int      `yaml:"commit-rows" doc:"A snapshot is made earlier when this many rows wait for it." default:"4000000"`
	CommitBytes    Size     `yaml:"commit-bytes" doc:"A snapshot is made earlier when records of this size wait for it." default:"1gb"`
	BufferSize     Size     `yaml:"buffer-size" doc:"Rows of this size are flushed before the interval ends." default:"32mb"`
	Transactions   string   `yaml:"transactions" doc:"whole: with debezium-json and topics of one partition, no snapshot falls between two events of one transaction of the source (provide.transaction.metadata)." enum:"whole"`
	TransactionFor Duration `yaml:"transaction-wait" doc:"With transactions: how long a snapshot waits for the next transaction to begin, which tells that the last one is over." default:"1s"`
	Compaction     Workers  `yaml:"compaction" doc:"Background compaction of the table."`
	Export         Export   `yaml:"export" doc:"Publication as an Iceberg table."`
	ExpireEvery    Duration `yaml:"expire-every" doc:"Time between two removals of old snapshots; 0s for never." default:"1m"`
	Dead           Dead     `yaml:"dead-letters" doc:"What happens to records that the table cannot take."`
}

// Push lets clients send rows: POST /v1/tables/DATABASE/TABLE/rows of the listening address.
type Push struct {
	MaxBody  Size `yaml:"max-body" doc:"Largest body of a request, when it is expanded." default:"32mb"`
	MaxRows  int  `yaml:"max-rows" doc:"Most lines of a request." default:"1000000"`
	Waiting  Size `yaml:"waiting" doc:"What requests that wait for their commit may take together, their bodies and the rows made of them; beyond it clients are told to come again." default:"128mb"`
	Remember int  `yaml:"remember" doc:"Most requests with a key that are remembered, and most clients with sequence numbers; at most 50000. None is forgotten within ten minutes: beyond it new ones are told to come again. Each takes some 70 bytes of every snapshot." default:"10000"`
}

// Dead says where refused records go, and when there are too many of them.
type Dead struct {
	Table   string   `yaml:"table" doc:"Table of the refused records; default: the pipeline's table with __dead behind its name. Where records choose their table, of those that have none; default: the pipeline's name with __dead behind it."`
	Limit   Size     `yaml:"limit" doc:"Size of that table's files at which the pipeline stops." default:"1gb"`
	Percent int      `yaml:"pause-percent" doc:"The pipeline pauses when so many of 100 records are refused; 0 for never." default:"50"`
	Window  Duration `yaml:"pause-window" doc:"The records of this time count for pause-percent." default:"1m"`
	Least   int      `yaml:"pause-least" doc:"Records that the window must hold before pause-percent counts." default:"1000"`
}

// DeadTable is the name of the table of a pipeline's dead letters.
func (p *Pipeline) DeadTable() string {
	if p.Dead.Table != "" {
		return p.Dead.Table
	}
	return DeadTable(p.Table)
}

// DeadTable is the name that the table of a table's dead letters has unless it is configured. Names with $ are system
// tables for Paimon and Trino, so it has none; for calve NAME$dead is the same.
func DeadTable(table string) string { return table + "__dead" }

// Kafka says which topics to read. One of Topic and of Topics with TopicPattern is given.
type Kafka struct {
	Brokers       []string          `yaml:"brokers" doc:"Addresses to start from, host:port." required:"true"`
	Topic         string            `yaml:"topic" doc:"Name of the topic, for a pipeline with one table."`
	Topics        []string          `yaml:"topics" doc:"Names of topics, for a pipeline with a table for each."`
	TopicPattern  string            `yaml:"topic-pattern" doc:"Regular expression (RE2) of the whole names of topics, each with a table of its own; topics that come later are found while the pipeline runs. Each topic is a job NAME:TOPIC."`
	ExceptPattern string            `yaml:"except-pattern" doc:"Regular expression of names that topics and topic-pattern leave out."`
	Start         string            `yaml:"start" doc:"Where a new job starts." enum:"earliest,latest" default:"earliest"`
	Fields        map[string]string `yaml:"fields" doc:"Columns filled from the record itself: column: topic, partition, offset, timestamp, key or, of a source table without key, row-hash and copies."`
	TLS           bool              `yaml:"tls" doc:"Talk to the brokers with TLS, trusting the authorities of this machine."`
	SASL          SASL              `yaml:"sasl" doc:"Credentials for the brokers."`
}

// SASL are credentials for Kafka brokers.
type SASL struct {
	Mechanism   string `yaml:"mechanism" doc:"How to prove who we are." enum:"PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"`
	User        string `yaml:"user" doc:"Name of the user."`
	Password    string `yaml:"password" doc:"Password of the user."`
	PasswordEnv string `yaml:"password-env" doc:"Environment variable that holds the password."`
	// PasswordFile is read when a pipeline starts, so that it may change while the process runs.
	PasswordFile string `yaml:"password-file" doc:"File that holds the password; white space around it is left out."`
}

// Secret gives the password. It is not to be printed.
func (s SASL) Secret() (string, error) {
	switch {
	case s.PasswordEnv != "":
		text, ok := os.LookupEnv(s.PasswordEnv)
		if !ok {
			return "", fmt.Errorf("kafka.sasl.password-env: the environment variable %s is not set", s.PasswordEnv)
		}
		return text, nil
	case s.PasswordFile != "":
		text, err := os.ReadFile(s.PasswordFile)
		if err != nil {
			return "", fmt.Errorf("kafka.sasl.password-file: %w", err)
		}
		return strings.TrimSpace(string(text)), nil
	}
	return s.Password, nil
}

// Format says how values are decoded.
type Format struct {
	Type        string   `yaml:"type" doc:"json: one object a record. debezium-json: Debezium envelopes. debezium-flat-json: what ExtractNewRecordState leaves of them. avro: records by a schema registry. debezium-avro: Debezium envelopes by one. protobuf: Protobuf messages by one. json-schema: json behind the id of a schema, as the serializer of a registry writes it; with registry the schema gives new columns their types." enum:"json,debezium-json,debezium-flat-json,avro,debezium-avro,protobuf,json-schema" default:"json"`
	Op          string   `yaml:"op" doc:"With json, avro and protobuf: field that holds the row kind (I, U, D, +I, -D, …); without it every record is an upsert." default:"op"`
	Evolution   string   `yaml:"evolution" doc:"What records may do to the table's schema. freeze: nothing, fields that are no columns are ignored. dead-letter: nothing, records with such fields are refused. add-only: such fields become columns. evolve: columns become wider too (INT to BIGINT and the like). Without it: freeze, but evolve where create leaves out the columns." enum:"freeze,dead-letter,add-only,evolve"`
	Decimals    string   `yaml:"decimals" doc:"How decimals come, unless records have a schema. text: as numbers or text. binary: as base64 of their bytes (Debezium's decimal.handling.mode precise)." enum:"text,binary" default:"text"`
	Unsigned    []string `yaml:"unsigned" doc:"DECIMAL columns of a MySQL source's BIGINT UNSIGNED that come as signed numbers (bigint.unsigned.handling.mode long)."`
	Specials    string   `yaml:"specials" doc:"What becomes of infinite dates, years beyond 9999 and decimals that are no number. refuse: their records go to the dead letters. null: the cells are null." enum:"refuse,null" default:"refuse"`
	DropRepeats bool     `yaml:"drop-repeats" doc:"With debezium-json: drop events that came before, by their position in the source's log. For tables without key; others bear repeats."`
	Before      string   `yaml:"before" doc:"With Debezium, of a partitioned table with a primary key, and where {field:PATH} chooses the table: what events tell of the row before. full: all columns (REPLICA IDENTITY FULL, MySQL). key: the source's key, and the partition columns, or the fields that choose the table, are a part of it." enum:"full,key"`
	Unavailable string   `yaml:"unavailable" doc:"With Debezium: its unavailable.value.placeholder." default:"__debezium_unavailable_value"`
}

// Create describes a new table.
type Create struct {
	Columns    string            `yaml:"columns" doc:"Columns as in SQL: id BIGINT NOT NULL, name STRING. Without it they come from the registry's newest schema of the topic's values (of protobuf see message), or from the topic's first records."`
	Message    string            `yaml:"message" doc:"With protobuf, where columns is left out: name of the message that is the row, as shop.Order or Order. Without it the schema's first message."`
	PrimaryKey []string          `yaml:"primary-key" doc:"Columns of the primary key; none makes an append table. If columns are left out, too: the fields of the records' keys, if these are JSON objects."`
	Partition  []string          `yaml:"partition" doc:"Partition columns."`
	Options    map[string]string `yaml:"options" doc:"Paimon table options."`
}

// Workers configures background compaction.
type Workers struct {
	Workers int `yaml:"workers" doc:"Compactions of the table that may run at once, within the budget of the process; 0 for none." default:"1"`
}

// Export configures the Iceberg publication.
type Export struct {
	Iceberg  bool     `yaml:"iceberg" doc:"Publish the compacted rows as an Iceberg table." default:"true"`
	Interval Duration `yaml:"interval" doc:"Least time between two exports of a table: what was compacted meanwhile is exported together. The first one, and the last one of a process, do not wait." default:"10s"`
}

// Duration is a time like 500ms, 1s or 2m.
type Duration time.Duration

// Size is a number of bytes like 64mb.
type Size int64

// TablePath is the folder of the table database.table in its warehouse, as Paimon's filesystem catalog lays it out. A
// name without database is in the database "default"; NAME$dead is the table of NAME's dead letters.
func TablePath(name string) (string, error) {
	db, table, ok := strings.Cut(name, ".")
	if !ok {
		db, table = "default", name
	}
	if of, ok := strings.CutSuffix(table, "$dead"); ok {
		table = DeadTable(of)
	}
	if strings.Contains(table, "$") {
		return "", fmt.Errorf("table name %q: a name with $ is a system table or a branch; calve reads branches, as database.table$branch_NAME, in the commands that read", name)
	}
	if db == "" || table == "" || strings.ContainsAny(name, "/\\") || strings.Contains(table, ".") {
		return "", fmt.Errorf("table name %q: use database.table", name)
	}
	return db + ".db/" + table, nil
}

// CutBranch takes the branch off a name such as database.table$branch_NAME, as Paimon's catalogs have it
// (`catalog.Identifier`); "" for a name without one.
func CutBranch(name string) (table, branch string) {
	table, branch, ok := strings.Cut(name, "$branch_")
	if !ok || branch == "" {
		return name, ""
	}
	return table, branch
}

// Load reads and checks a file.
func Load(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return Parse(path, data)
}
