package calve.peer;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.paimon.catalog.Catalog;
import org.apache.paimon.catalog.CatalogContext;
import org.apache.paimon.catalog.CatalogFactory;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.data.BinaryRow;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.disk.IOManager;
import org.apache.paimon.manifest.ManifestEntry;
import org.apache.paimon.options.Options;
import org.apache.paimon.predicate.Predicate;
import org.apache.paimon.predicate.PredicateBuilder;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.reader.RecordReaderIterator;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.sink.StreamTableCommit;
import org.apache.paimon.table.sink.StreamTableWrite;
import org.apache.paimon.table.sink.StreamWriteBuilder;
import org.apache.paimon.table.source.DataSplit;
import org.apache.paimon.table.source.ReadBuilder;
import org.apache.paimon.table.source.Split;
import org.apache.paimon.table.source.StreamTableScan;
import org.apache.paimon.table.source.TableRead;
import org.apache.paimon.types.DataField;
import org.apache.paimon.types.RowKind;
import org.apache.paimon.types.RowType;

import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Paimon's Java library as a judge and as a foreign writer. Requests carry "warehouse" (a URL), "options" (of the
 * catalog), "table" ("db.name") and "snapshot" (0 is the latest). The scratch folder is the program's argument.
 */
public final class PaimonPeer {
    private static IOManager scratch;

    private PaimonPeer() {}

    public static void main(String[] args) throws Exception {
        scratch = IOManager.create(args[0]);
        Map<String, Worker.Handler> handlers = new HashMap<>();
        handlers.put("read", PaimonPeer::read);
        handlers.put("count", PaimonPeer::count);
        handlers.put("describe", PaimonPeer::describe);
        handlers.put("changes", PaimonPeer::changes);
        handlers.put("files", PaimonPeer::files);
        handlers.put("write", PaimonPeer::write);
        handlers.put("compact", PaimonPeer::compact);
        Histories.register(handlers, scratch);
        Worker.serve(handlers);
    }

    private static FileStoreTable table(JsonNode request) throws Exception {
        Options options = new Options();
        options.set("warehouse", request.get("warehouse").asText());
        request.path("options").fields().forEachRemaining(e -> options.set(e.getKey(), e.getValue().asText()));
        try (Catalog catalog = CatalogFactory.createCatalog(CatalogContext.create(options))) {
            return (FileStoreTable) catalog.getTable(Identifier.fromString(request.get("table").asText()));
        }
    }

    private static FileStoreTable tableAt(JsonNode request) throws Exception {
        FileStoreTable table = table(request);
        long snapshot = request.path("snapshot").asLong();
        return snapshot == 0 ? table : table.copy(Map.of("scan.snapshot-id", Long.toString(snapshot)));
    }

    /** Takes the rows of a scan. */
    private interface Sink {
        void row(InternalRow row);
    }

    private static long each(ReadBuilder builder, Sink sink) throws Exception {
        long rows = 0;
        TableRead read = builder.newRead().executeFilter().withIOManager(scratch);
        try (RecordReader<InternalRow> reader = read.createReader(builder.newScan().plan());
                RecordReaderIterator<InternalRow> it = new RecordReaderIterator<>(reader)) {
            for (; it.hasNext(); rows++) {
                sink.row(it.next());
            }
        }
        return rows;
    }

    /** All rows of the snapshot, to the file "out". */
    private static ObjectNode read(JsonNode request) throws Exception {
        FileStoreTable table = tableAt(request);
        RowType type = table.rowType();
        try (PrintWriter out = new PrintWriter(request.get("out").asText(), StandardCharsets.UTF_8)) {
            long rows = each(table.newReadBuilder(), row -> out.println(Cells.toJson(row, type)));
            return Worker.JSON.createObjectNode().put("rows", rows);
        }
    }

    /** How many rows have "column" equal to "value", by a predicate pushed down to manifests and files. */
    private static ObjectNode count(JsonNode request) throws Exception {
        FileStoreTable table = tableAt(request);
        RowType type = table.rowType();
        int column = type.getFieldIndex(request.get("column").asText());
        Object value = Cells.fromJson(request.get("value"), type.getTypeAt(column));
        Predicate equal = new PredicateBuilder(type).equal(column, value);
        return Worker.JSON.createObjectNode().put("count", each(table.newReadBuilder().withFilter(equal), row -> {}));
    }

    /** Columns with their ids and types, keys, the partitions that hold files, and the range of snapshots. */
    private static ObjectNode describe(JsonNode request) throws Exception {
        FileStoreTable table = tableAt(request);
        ObjectNode out = Worker.JSON.createObjectNode();
        ArrayNode fields = out.putArray("fields");
        for (DataField f : table.rowType().getFields()) {
            fields.addObject().put("name", f.name()).put("type", f.type().asSQLString()).put("id", f.id());
        }
        table.primaryKeys().forEach(out.putArray("primaryKeys")::add);
        table.partitionKeys().forEach(out.putArray("partitionKeys")::add);
        RowType partition = table.schema().logicalPartitionType();
        ArrayNode partitions = out.putArray("partitions");
        for (BinaryRow row : table.newReadBuilder().newScan().listPartitions()) {
            partitions.add(Cells.toJson(row, partition));
        }
        Long earliest = table.snapshotManager().earliestSnapshotId();
        Long latest = table.snapshotManager().latestSnapshotId();
        return out.put("earliest", earliest == null ? 0 : earliest).put("latest", latest == null ? 0 : latest);
    }

    /** The change stream from the first snapshot to the latest: one {"snapshot", "kind", "bucket", "row"} a line. */
    private static ObjectNode changes(JsonNode request) throws Exception {
        FileStoreTable latestTable = table(request);
        Long latest = latestTable.snapshotManager().latestSnapshotId();
        ObjectNode done = Worker.JSON.createObjectNode();
        FileStoreTable table =
                latestTable.copyWithoutTimeTravel(Map.of("scan.mode", "from-snapshot", "scan.snapshot-id", "1"));
        ReadBuilder builder = table.newReadBuilder();
        StreamTableScan scan = builder.newStreamScan();
        TableRead read = builder.newRead().withIOManager(scratch);
        long rows = 0;
        try (PrintWriter out = new PrintWriter(request.get("out").asText(), StandardCharsets.UTF_8)) {
            while (latest != null) {
                List<Split> splits = scan.plan().splits();
                for (Split split : splits) {
                    rows += changes(read, (DataSplit) split, table.rowType(), out);
                }
                Long next = scan.checkpoint();
                if (next != null && next > latest) {
                    break;
                }
            }
        }
        return done.put("rows", rows);
    }

    private static long changes(TableRead read, DataSplit split, RowType type, PrintWriter out) throws Exception {
        long rows = 0;
        try (RecordReader<InternalRow> reader = read.createReader(split);
                RecordReaderIterator<InternalRow> it = new RecordReaderIterator<>(reader)) {
            for (; it.hasNext(); rows++) {
                InternalRow row = it.next();
                ObjectNode line = Worker.JSON.createObjectNode();
                line.put("snapshot", split.snapshotId()).put("kind", row.getRowKind().shortString());
                line.put("bucket", split.bucket()).set("row", Cells.toJson(row, type));
                out.println(line);
            }
        }
        return rows;
    }

    /** The live data files of the snapshot. */
    private static ObjectNode files(JsonNode request) throws Exception {
        FileStoreTable table = tableAt(request);
        ObjectNode out = Worker.JSON.createObjectNode();
        ArrayNode files = out.putArray("files");
        for (ManifestEntry e : table.store().newScan().plan().files()) {
            files.addObject().put("name", e.file().fileName()).put("bucket", e.bucket()).put("level", e.file().level())
                    .put("rows", e.file().rowCount()).put("deletes", e.file().deleteRowCount().orElse(0L))
                    .put("minSequence", e.file().minSequenceNumber()).put("maxSequence", e.file().maxSequenceNumber());
        }
        return out;
    }

    /** Writes the {"kind", "row"} lines of the file "in" as one commit of another user. */
    private static ObjectNode write(JsonNode request) throws Exception {
        FileStoreTable table = table(request);
        StreamWriteBuilder builder = table.newStreamWriteBuilder().withCommitUser("paimon-java");
        try (StreamTableWrite write = (StreamTableWrite) builder.newWrite().withIOManager(scratch);
                StreamTableCommit commit = builder.newCommit()) {
            for (String line : Files.readAllLines(Path.of(request.get("in").asText()), StandardCharsets.UTF_8)) {
                JsonNode change = Worker.JSON.readTree(line);
                RowKind kind = RowKind.fromShortString(change.get("kind").asText());
                write.write(Cells.fromJson(change.get("row"), table.rowType(), kind));
            }
            long id = System.nanoTime();
            commit.commit(id, write.prepareCommit(true, id));
        }
        return Worker.JSON.createObjectNode().put("snapshot", table.snapshotManager().latestSnapshotId());
    }

    /** Compacts every bucket of every partition in full, as one commit of another user. */
    private static ObjectNode compact(JsonNode request) throws Exception {
        FileStoreTable table = table(request);
        StreamWriteBuilder builder = table.newStreamWriteBuilder().withCommitUser("paimon-java");
        try (StreamTableWrite write = (StreamTableWrite) builder.newWrite().withIOManager(scratch);
                StreamTableCommit commit = builder.newCommit()) {
            Map<BinaryRow, java.util.Set<Integer>> seen = new HashMap<>();
            for (ManifestEntry e : table.store().newScan().plan().files()) {
                if (seen.computeIfAbsent(e.partition(), p -> new java.util.HashSet<>()).add(e.bucket())) {
                    write.compact(e.partition(), e.bucket(), true);
                }
            }
            long id = System.nanoTime();
            commit.commit(id, write.prepareCommit(true, id));
        }
        return Worker.JSON.createObjectNode().put("snapshot", table.snapshotManager().latestSnapshotId());
    }
}
