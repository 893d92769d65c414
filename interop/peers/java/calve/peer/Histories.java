package calve.peer;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.paimon.AppendOnlyFileStore;
import org.apache.paimon.append.AppendCompactCoordinator;
import org.apache.paimon.append.AppendCompactTask;
import org.apache.paimon.catalog.Catalog;
import org.apache.paimon.catalog.CatalogContext;
import org.apache.paimon.catalog.CatalogFactory;
import org.apache.paimon.catalog.Identifier;
import org.apache.paimon.consumer.Consumer;
import org.apache.paimon.data.BinaryRow;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.disk.IOManager;
import org.apache.paimon.index.HashBucketAssigner;
import org.apache.paimon.manifest.ManifestCommittable;
import org.apache.paimon.manifest.ManifestEntry;
import org.apache.paimon.operation.BaseAppendFileStoreWrite;
import org.apache.paimon.options.Options;
import org.apache.paimon.predicate.Predicate;
import org.apache.paimon.predicate.PredicateBuilder;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.reader.RecordReaderIterator;
import org.apache.paimon.schema.Schema;
import org.apache.paimon.schema.SchemaChange;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.paimon.table.BucketMode;
import org.apache.paimon.table.FileStoreTable;
import org.apache.paimon.table.SpecialFields;
import org.apache.paimon.table.Table;
import org.apache.paimon.table.sink.BatchTableCommit;
import org.apache.paimon.table.sink.BatchTableWrite;
import org.apache.paimon.table.sink.BatchWriteBuilder;
import org.apache.paimon.table.sink.CommitMessage;
import org.apache.paimon.table.sink.RowPartitionKeyExtractor;
import org.apache.paimon.table.sink.StreamTableCommit;
import org.apache.paimon.table.sink.StreamTableWrite;
import org.apache.paimon.table.sink.StreamWriteBuilder;
import org.apache.paimon.table.sink.TableCommitImpl;
import org.apache.paimon.table.sink.TableWrite;
import org.apache.paimon.table.source.DataSplit;
import org.apache.paimon.table.source.EndOfScanException;
import org.apache.paimon.table.source.ReadBuilder;
import org.apache.paimon.table.source.Split;
import org.apache.paimon.table.source.StreamTableScan;
import org.apache.paimon.table.source.TableRead;
import org.apache.paimon.types.DataField;
import org.apache.paimon.types.DataType;
import org.apache.paimon.types.DataTypeJsonParser;
import org.apache.paimon.types.RowKind;
import org.apache.paimon.types.RowType;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Java's part of the differential tester (interop/differ_*.go): one step of a random history, or a look at everything
 * that must agree after it. Tables are small, so rows travel inside requests and answers.
 */
final class Histories {
    private static final String USER = "paimon-java";
    private static final ObjectMapper TYPES = new ObjectMapper(); // Paimon's own copy of Jackson
    private static IOManager scratch;

    private Histories() {}

    static void register(Map<String, Worker.Handler> handlers, IOManager io) {
        scratch = io;
        handlers.put("history-create", Histories::create);
        handlers.put("history-write", Histories::write);
        handlers.put("history-overwrite", Histories::overwrite);
        handlers.put("history-compact", Histories::compact);
        handlers.put("history-expire", Histories::expire);
        handlers.put("history-tag", Histories::tag);
        handlers.put("history-branch", Histories::branch);
        handlers.put("history-consumer", Histories::consumer);
        handlers.put("history-alter", Histories::alter);
        handlers.put("history-look", Histories::look);
        handlers.put("history-row-ids", Histories::rowIds);
    }

    private static Catalog catalog(JsonNode request) {
        Options options = new Options();
        options.set("warehouse", request.get("warehouse").asText());
        return CatalogFactory.createCatalog(CatalogContext.create(options));
    }

    /** The table or its "branch" as its schema is now, with the options that this one step sets ("dynamic"). */
    private static FileStoreTable table(JsonNode request) throws Exception {
        try (Catalog catalog = catalog(request)) {
            Identifier name = Identifier.fromString(request.get("table").asText());
            FileStoreTable table = (FileStoreTable) catalog.getTable(name);
            if (request.hasNonNull("branch")) {
                table = table.switchToBranch(request.get("branch").asText());
            }
            return table.copy(strings(request.path("dynamic")));
        }
    }

    private static Map<String, String> strings(JsonNode object) {
        Map<String, String> out = new LinkedHashMap<>();
        object.fields().forEachRemaining(e -> out.put(e.getKey(), e.getValue().asText()));
        return out;
    }

    private static List<String> names(JsonNode array) {
        List<String> out = new ArrayList<>();
        array.forEach(n -> out.add(n.asText()));
        return out;
    }

    /** Creates the table "table" of "columns", "key", "partition" and "options". */
    private static ObjectNode create(JsonNode request) throws Exception {
        Schema.Builder schema = Schema.newBuilder();
        for (JsonNode c : request.get("columns")) {
            schema.column(c.get("name").asText(), type(c));
        }
        schema.primaryKey(names(request.path("key")));
        schema.partitionKeys(names(request.path("partition")));
        schema.options(strings(request.path("options")));
        Identifier name = Identifier.fromString(request.get("table").asText());
        try (Catalog catalog = catalog(request)) {
            catalog.createDatabase(name.getDatabaseName(), true);
            catalog.createTable(name, schema.build(), false);
        }
        return Worker.JSON.createObjectNode();
    }

    private static void writeRows(TableWrite write, FileStoreTable table, JsonNode changes) throws Exception {
        HashBucketAssigner buckets = null;
        if (table.bucketMode() == BucketMode.HASH_DYNAMIC) {
            buckets = new HashBucketAssigner(table.snapshotManager(), USER, table.store().newIndexFileHandler(), 1, 1, 0,
                    table.coreOptions().dynamicBucketTargetRowNum(), table.coreOptions().dynamicBucketMaxBuckets());
        }
        RowPartitionKeyExtractor keys = buckets == null ? null : new RowPartitionKeyExtractor(table.schema());
        for (JsonNode change : changes) {
            RowKind kind = RowKind.fromShortString(change.get("kind").asText());
            GenericRow row = Cells.fromJson(change.get("row"), table.rowType(), kind);
            if (buckets == null) {
                write.write(row);
            } else {
                write.write(row, buckets.assign(keys.partition(row), keys.trimmedPrimaryKey(row).hashCode()));
            }
        }
    }

    /** Commits "changes" as a streaming job does; with "wait" the compactions that they cause are part of it. */
    private static ObjectNode write(JsonNode request) throws Exception {
        FileStoreTable table = table(request);
        StreamWriteBuilder builder = table.newStreamWriteBuilder().withCommitUser(USER);
        try (StreamTableWrite write = (StreamTableWrite) builder.newWrite().withIOManager(scratch);
                StreamTableCommit commit = builder.newCommit()) {
            writeRows(write, table, request.get("changes"));
            long id = System.nanoTime();
            Long watermark = request.hasNonNull("watermark") ? request.get("watermark").asLong() : null;
            ManifestCommittable all = new ManifestCommittable(id, watermark);
            write.prepareCommit(request.path("wait").asBoolean(), id).forEach(all::addFileCommittable);
            ((TableCommitImpl) commit).commit(all);
        }
        return Worker.JSON.createObjectNode();
    }

    /** Puts "changes" in the place of the table's rows, or of those in the partition "spec". */
    private static ObjectNode overwrite(JsonNode request) throws Exception {
        FileStoreTable table = table(request);
        BatchWriteBuilder builder = table.newBatchWriteBuilder().withOverwrite(strings(request.path("spec")));
        try (BatchTableWrite write = (BatchTableWrite) builder.newWrite().withIOManager(scratch);
                BatchTableCommit commit = builder.newCommit()) {
            writeRows(write, table, request.get("changes"));
            commit.commit(write.prepareCommit());
        }
        return Worker.JSON.createObjectNode();
    }

    /** Compacts every bucket as the options ask, or in "full". */
    private static ObjectNode compact(JsonNode request) throws Exception {
        FileStoreTable table = table(request);
        if (table.bucketMode() == BucketMode.BUCKET_UNAWARE) {
            return compactUnaware(table);
        }
        StreamWriteBuilder builder = table.newStreamWriteBuilder().withCommitUser(USER);
        try (StreamTableWrite write = (StreamTableWrite) builder.newWrite().withIOManager(scratch);
                StreamTableCommit commit = builder.newCommit()) {
            Map<BinaryRow, Set<Integer>> seen = new HashMap<>();
            for (ManifestEntry e : table.store().newScan().plan().files()) {
                if (seen.computeIfAbsent(e.partition(), p -> new HashSet<>()).add(e.bucket())) {
                    write.compact(e.partition(), e.bucket(), request.path("full").asBoolean());
                }
            }
            long id = System.nanoTime();
            commit.commit(id, write.prepareCommit(true, id));
        }
        return Worker.JSON.createObjectNode();
    }

    /** Compacts small files of an append table without buckets. */
    private static ObjectNode compactUnaware(FileStoreTable table) throws Exception {
        List<AppendCompactTask> tasks;
        try {
            tasks = new AppendCompactCoordinator(table, false).run();
        } catch (EndOfScanException e) {
            return Worker.JSON.createObjectNode(); // no small files
        }
        StreamWriteBuilder builder = table.newStreamWriteBuilder().withCommitUser(USER);
        BaseAppendFileStoreWrite write = ((AppendOnlyFileStore) table.store()).newWrite(USER);
        if (table.coreOptions().rowTrackingEnabled()) { // as AppendTableCompactor of Paimon's Flink connector
            write.withWriteType(SpecialFields.rowTypeWithRowTracking(table.rowType()));
        }
        try (StreamTableCommit commit = builder.newCommit()) {
            List<CommitMessage> done = new ArrayList<>();
            for (AppendCompactTask task : tasks) {
                done.add(task.doCompact(table, write));
            }
            commit.commit(System.nanoTime(), done);
        } finally {
            write.close();
        }
        return Worker.JSON.createObjectNode();
    }

    /** Expires snapshots as the table's options ask. */
    private static ObjectNode expire(JsonNode request) throws Exception {
        FileStoreTable table = table(request);
        int gone = table.newExpireSnapshots().config(table.coreOptions().expireConfig()).expire();
        if (table.coreOptions().changelogLifecycleDecoupled()) { // as a commit does
            table.newExpireChangelog().config(table.coreOptions().expireConfig()).expire();
        }
        return Worker.JSON.createObjectNode().put("expired", gone);
    }

    /** Makes the tag "tag" of the latest snapshot, or deletes it. */
    private static ObjectNode tag(JsonNode request) throws Exception {
        FileStoreTable table = table(request);
        String tag = request.get("tag").asText();
        if (request.path("delete").asBoolean()) {
            table.deleteTag(tag);
        } else {
            table.createTag(tag);
        }
        return Worker.JSON.createObjectNode();
    }

    /** Makes the branch "name" of the tag "tag" or an empty one, or deletes it. */
    private static ObjectNode branch(JsonNode request) throws Exception {
        FileStoreTable table = table(request);
        String name = request.get("name").asText();
        String tag = request.path("tag").asText();
        if (request.path("delete").asBoolean()) {
            table.deleteBranch(name);
        } else if (tag.isEmpty()) {
            table.createBranch(name);
        } else {
            table.createBranch(name, tag);
        }
        return Worker.JSON.createObjectNode();
    }

    /** Puts the consumer "name" to the snapshot "next", or deletes it. */
    private static ObjectNode consumer(JsonNode request) throws Exception {
        FileStoreTable table = table(request);
        String name = request.get("name").asText();
        if (request.path("delete").asBoolean()) {
            table.consumerManager().deleteConsumer(name);
        } else {
            table.consumerManager().resetConsumer(name, new Consumer(request.get("next").asLong()));
        }
        return Worker.JSON.createObjectNode();
    }

    /** Makes one change of the schema. */
    private static ObjectNode alter(JsonNode request) throws Exception {
        try (Catalog catalog = catalog(request)) {
            catalog.alterTable(Identifier.fromString(request.get("table").asText()), List.of(change(request)), false);
        }
        return Worker.JSON.createObjectNode();
    }

    private static SchemaChange change(JsonNode request) throws Exception {
        String[] path = names(request.get("path")).toArray(new String[0]);
        String column = path[path.length - 1];
        switch (request.get("what").asText()) {
            case "add":
                return SchemaChange.addColumn(path, type(request), null, move(request, column));
            case "drop":
                return SchemaChange.dropColumn(path);
            case "rename":
                return SchemaChange.renameColumn(path, request.get("to").asText());
            case "move":
                return SchemaChange.updateColumnPosition(move(request, column));
            case "type":
                return SchemaChange.updateColumnType(path, type(request), true);
            case "allow null":
                return SchemaChange.updateColumnNullability(path, true);
            default:
                throw new IllegalArgumentException("no such change: " + request);
        }
    }

    private static DataType type(JsonNode request) throws Exception {
        return DataTypeJsonParser.parseDataType(TYPES.readTree(request.get("type").toString()));
    }

    private static SchemaChange.Move move(JsonNode request, String column) {
        String ref = request.path("ref").asText();
        switch (request.path("place").asText()) {
            case "first":
                return SchemaChange.Move.first(column);
            case "last":
                return SchemaChange.Move.last(column);
            case "after":
                return SchemaChange.Move.after(column, ref);
            case "before":
                return SchemaChange.Move.before(column, ref);
            default:
                return null;
        }
    }

    /**
     * Reads the latest rows, those with each of "travels" (options of a scan), of "branches", and the change stream from
     * the snapshot "from" to the latest; "betweens" are reads of changes with "options". Every read is {"columns", "rows"},
     * or of travels an {"error"}; every change {"snapshot", "kind", "row"}.
     */
    private static ObjectNode look(JsonNode request) throws Exception {
        FileStoreTable table = table(request);
        Long latest = table.snapshotManager().latestSnapshotId();
        ObjectNode out = Worker.JSON.createObjectNode();
        out.put("latest", latest == null ? 0 : latest);
        out.set("rows", rows(table));
        ArrayNode travels = out.putArray("travels");
        for (JsonNode options : request.path("travels")) {
            travels.add(attempt(() -> rows(table.copy(strings(options)))));
        }
        ArrayNode betweens = out.putArray("betweens");
        for (JsonNode one : request.path("betweens")) {
            betweens.add(attempt(() -> between(table.copy(strings(one.get("options"))), one)));
        }
        ArrayNode branches = out.putArray("branches");
        for (JsonNode name : request.path("branches")) {
            branches.add(rows(table.switchToBranch(name.asText())));
        }
        ObjectNode changes = out.putObject("changes");
        columns(changes, table.rowType());
        changes(table, request.path("from").asLong(), latest == null ? 0 : latest, changes.putArray("rows"));
        return out;
    }

    /** A read that may be refused. */
    private interface Attempt {
        ObjectNode read() throws Exception;
    }

    private static ObjectNode attempt(Attempt attempt) {
        try {
            return attempt.read();
        } catch (Exception e) {
            return Worker.JSON.createObjectNode().put("error", String.valueOf(e));
        }
    }

    /**
     * The changes of a batch read with the options incremental-between: "rows", and "chosen", those with "value" in
     * "column" by a predicate pushed down.
     */
    private static ObjectNode between(FileStoreTable table, JsonNode request) throws Exception {
        ObjectNode out = Worker.JSON.createObjectNode();
        RowType type = table.rowType();
        columns(out, type);
        between(table, table.newReadBuilder(), out.putArray("rows"));
        if (request.hasNonNull("column")) {
            int column = type.getFieldIndex(request.get("column").asText());
            Object value = Cells.fromJson(request.get("value"), type.getTypeAt(column));
            Predicate equal = new PredicateBuilder(type).equal(column, value);
            between(table, table.newReadBuilder().withFilter(equal), out.putArray("chosen"));
        }
        return out;
    }

    private static void between(FileStoreTable table, ReadBuilder builder, ArrayNode rows) throws Exception {
        TableRead read = builder.newRead().executeFilter().withIOManager(scratch);
        for (Split split : builder.newScan().plan().splits()) {
            changes(read, split, 0, table.rowType(), rows);
        }
    }

    private static void columns(ObjectNode out, RowType type) {
        ArrayNode columns = out.putArray("columns");
        for (DataField f : type.getFields()) {
            columns.addObject().put("name", f.name()).put("type", f.type().asSQLString());
        }
    }

    /** The rows of a table with row tracking, with the columns _ROW_ID and _SEQUENCE_NUMBER. */
    private static ObjectNode rowIds(JsonNode request) throws Exception {
        try (Catalog catalog = catalog(request)) {
            return rows(catalog.getTable(Identifier.fromString(request.get("table").asText() + "$row_tracking")));
        }
    }

    private static ObjectNode rows(Table table) throws Exception {
        RowType type = table.rowType();
        ObjectNode out = Worker.JSON.createObjectNode();
        columns(out, type);
        ArrayNode rows = out.putArray("rows");
        ReadBuilder builder = table.newReadBuilder();
        TableRead read = builder.newRead().withIOManager(scratch);
        try (RecordReader<InternalRow> reader = read.createReader(builder.newScan().plan());
                RecordReaderIterator<InternalRow> it = new RecordReaderIterator<>(reader)) {
            while (it.hasNext()) {
                rows.add(Cells.toJson(it.next(), type));
            }
        }
        return out;
    }

    private static void changes(FileStoreTable latest, long from, long to, ArrayNode out) throws Exception {
        if (from > to) {
            return;
        }
        FileStoreTable table = latest.copyWithoutTimeTravel(
                Map.of("scan.mode", "from-snapshot", "scan.snapshot-id", Long.toString(from)));
        ReadBuilder builder = table.newReadBuilder();
        StreamTableScan scan = builder.newStreamScan();
        TableRead read = builder.newRead().withIOManager(scratch);
        Long next = null;
        while (next == null || next <= to) {
            for (Split split : scan.plan().splits()) {
                changes(read, split, ((DataSplit) split).snapshotId(), table.rowType(), out);
            }
            next = scan.checkpoint();
        }
    }

    private static void changes(TableRead read, Split split, long snapshot, RowType type, ArrayNode out) throws Exception {
        try (RecordReader<InternalRow> reader = read.createReader(split);
                RecordReaderIterator<InternalRow> it = new RecordReaderIterator<>(reader)) {
            while (it.hasNext()) {
                InternalRow row = it.next();
                ObjectNode change = out.addObject().put("snapshot", snapshot);
                change.put("kind", row.getRowKind().shortString()).set("row", Cells.toJson(row, type));
            }
        }
    }
}
