package calve.flink;

import calve.peer.Worker;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.TableResult;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;

import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Flink with Paimon's connector as a foreign engine: each statement is a job of a cluster within this process. Requests
 * carry "catalog" (options of the Paimon catalog, which is the current one), "config" (of Flink), "before" (statements
 * that prepare the session) and "sql". Jobs that go on beside the suite have a "name".
 */
public final class FlinkPeer {
    private static final Map<String, Running> jobs = new HashMap<>();

    private FlinkPeer() {}

    public static void main(String[] args) throws Exception {
        Map<String, Worker.Handler> handlers = new HashMap<>();
        handlers.put("run", FlinkPeer::run);
        handlers.put("select", FlinkPeer::select);
        handlers.put("start", FlinkPeer::start);
        handlers.put("follow", FlinkPeer::follow);
        handlers.put("wait", FlinkPeer::waitFor);
        handlers.put("stop", FlinkPeer::stop);
        Worker.serve(handlers);
    }

    /** A job that goes on while other requests are answered. */
    private static final class Running {
        TableResult result;
        Thread reader; // of a query
        volatile Throwable failure;
        volatile boolean stopping;
    }

    private static TableEnvironment environment(JsonNode request, boolean streaming) {
        Configuration config = new Configuration();
        config.setString("parallelism.default", "1");
        config.setString("table.local-time-zone", "UTC");
        request.path("config").fields().forEachRemaining(e -> config.setString(e.getKey(), e.getValue().asText()));
        EnvironmentSettings.Builder settings = EnvironmentSettings.newInstance().withConfiguration(config);
        TableEnvironment env = TableEnvironment.create(
                streaming ? settings.inStreamingMode().build() : settings.inBatchMode().build());
        StringBuilder with = new StringBuilder("'type'='paimon'");
        request.get("catalog").fields().forEachRemaining(
                e -> with.append(", '").append(e.getKey()).append("'='").append(e.getValue().asText()).append("'"));
        env.executeSql("CREATE CATALOG lake WITH (" + with + ")");
        env.useCatalog("lake");
        request.path("before").forEach(sql -> env.executeSql(sql.asText()));
        return env;
    }

    /** Runs one statement to its end, in batch mode. */
    private static ObjectNode run(JsonNode request) throws Exception {
        TableEnvironment env = environment(request, false);
        env.getConfig().set("table.dml-sync", "true");
        env.executeSql(request.get("sql").asText()).await();
        return Worker.JSON.createObjectNode();
    }

    /** Writes the rows of a batch query to the file "out". */
    private static ObjectNode select(JsonNode request) throws Exception {
        TableResult result = environment(request, false).executeSql(request.get("sql").asText());
        List<String> columns = result.getResolvedSchema().getColumnNames();
        long rows = 0;
        try (PrintWriter out = new PrintWriter(request.get("out").asText(), StandardCharsets.UTF_8);
                CloseableIterator<Row> it = result.collect()) {
            for (; it.hasNext(); rows++) {
                out.println(toJson(it.next(), columns));
            }
        }
        return Worker.JSON.createObjectNode().put("rows", rows);
    }

    /** Starts a streaming statement under "name" and does not wait for it; "wait" does. */
    private static ObjectNode start(JsonNode request) throws Exception {
        Running job = new Running();
        job.result = environment(request, true).executeSql(request.get("sql").asText());
        jobs.put(request.get("name").asText(), job);
        return Worker.JSON.createObjectNode();
    }

    /** Starts a streaming query under "name" that appends {"kind", "row"} to the file "out" until it is stopped. */
    private static ObjectNode follow(JsonNode request) throws Exception {
        Running job = new Running();
        job.result = environment(request, true).executeSql(request.get("sql").asText());
        List<String> columns = job.result.getResolvedSchema().getColumnNames();
        PrintWriter out = new PrintWriter(request.get("out").asText(), StandardCharsets.UTF_8);
        job.reader = new Thread(() -> {
            try (out; CloseableIterator<Row> it = job.result.collect()) {
                while (it.hasNext()) {
                    Row row = it.next();
                    ObjectNode line = Worker.JSON.createObjectNode().put("kind", row.getKind().shortString());
                    line.set("row", toJson(row, columns));
                    out.println(line);
                    out.flush();
                }
                job.failure = job.stopping ? null : new IllegalStateException("the stream has ended");
            } catch (Throwable e) {
                job.failure = job.stopping ? null : e;
            }
        }, "follow");
        job.reader.start();
        jobs.put(request.get("name").asText(), job);
        return Worker.JSON.createObjectNode();
    }

    /** Waits until a started statement has ended; its failure is the answer's. */
    private static ObjectNode waitFor(JsonNode request) throws Exception {
        jobs.remove(request.get("name").asText()).result.await();
        return Worker.JSON.createObjectNode();
    }

    /** Cancels a job; that it had failed before is the answer's failure. */
    private static ObjectNode stop(JsonNode request) throws Exception {
        Running job = jobs.remove(request.get("name").asText());
        if (job.failure != null) {
            throw new IllegalStateException("the job failed before it was stopped", job.failure);
        }
        job.stopping = true;
        JobClient client = job.result.getJobClient().orElseThrow();
        client.cancel().get();
        if (job.reader != null) {
            job.reader.join();
        }
        return Worker.JSON.createObjectNode();
    }

    private static ObjectNode toJson(Row row, List<String> columns) {
        ObjectNode out = Worker.JSON.createObjectNode();
        for (int i = 0; i < columns.size(); i++) {
            Object value = row.getField(i);
            if (value == null) {
                out.putNull(columns.get(i));
            } else if (value instanceof Integer || value instanceof Long) {
                out.put(columns.get(i), ((Number) value).longValue());
            } else {
                out.put(columns.get(i), value.toString());
            }
        }
        return out;
    }
}
