// Package ingest brings records into a table: it decodes them into Arrow batches, keeps their source positions and
// publishes both together, so that every record is in the table exactly once.
//
// One pipeline is two goroutines. The source goroutine (Kafka or lines) polls records and decodes them; each step it
// hands over is a unit: a batch, the rejected records and how far the source came. The commit goroutine (RunKafka or
// RunLines itself) writes the batches, makes the rejected records durable, and commits:
//
//	source:  poll → decode ─┐ unit (batch, rejects, position)      at most one waits: that is the back-pressure
//	commit:                 └→ Table.Write … every CommitInterval (see pace): DeadLetter.Flush → Table.Commit(positions)
//
// Pipelines of one cluster share a Hub: one client that fetches all their topics and one that asks about them. What is
// fetched waits in a bounded queue a topic; a pipeline that is slow or stalled has its own topic paused, and no other.
//
// The position is part of the snapshot that publishes the rows (properties `calve.source.*`), so a crash at any moment
// leaves either both or neither. After a restart reading goes on at the position of the last committed snapshot; nothing
// else decides where. The identity of the source (cluster id, topic id) is stored beside it: when the source is not the
// one the position was taken from, or no longer has what follows it, the pipeline stops and says so.
package ingest
