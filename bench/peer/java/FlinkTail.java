import java.io.*;
import java.util.*;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.SinkFunction;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.types.Row;

/**
 * Flink's side of the comparison of tails: a streaming read of a Paimon table, whose column `at` says when a row was written, in
 * microseconds since 1970. Commands come on standard input, one a line; each is answered with one line.
 *
 * <pre>
 *   start WAREHOUSE TABLE MILLIS   a query that follows the table and looks for snapshots every so many milliseconds
 *   reset                          forgets the rows until now
 *   lags                           → number of rows, median, 99th percentile and most of how long they took, in microseconds
 * </pre>
 */
public class FlinkTail {
  static long[] lags = new long[1 << 20];
  static int n;

  static synchronized void took(long micros) {
    if (n == lags.length) lags = Arrays.copyOf(lags, 2 * n);
    lags[n++] = micros;
  }

  static synchronized String quantiles() {
    long[] v = Arrays.copyOf(lags, n);
    Arrays.sort(v);
    return n == 0 ? "0 0 0 0" : n + " " + v[n / 2] + " " + v[(int) (n * 0.99)] + " " + v[n - 1];
  }

  static synchronized String reset() {
    n = 0;
    return "ok";
  }

  /** What each row ends in: the cluster is in this process. */
  public static class Lags implements SinkFunction<Row> {
    @Override
    public void invoke(Row row, Context context) {
      java.time.Instant now = java.time.Instant.now();
      took(now.getEpochSecond() * 1_000_000 + now.getNano() / 1000 - (Long) row.getField(0));
    }
  }

  public static void main(String[] args) throws Exception {
    PrintStream out = System.out;
    System.setOut(System.err);
    JobClient job = null;
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    for (String line; (line = in.readLine()) != null; ) {
      String[] w = line.split(" ");
      try {
        switch (w[0]) {
          case "start":
            job = follow(w[1], w[2], w[3]);
            out.println("ok");
            break;
          case "reset":
            out.println(reset());
            break;
          case "lags":
            out.println(quantiles());
            break;
          default:
            out.println("error unknown command");
        }
      } catch (Throwable t) {
        t.printStackTrace();
        out.println("error " + t);
      }
      out.flush();
    }
    if (job != null) job.cancel().get();
    System.exit(0);
  }

  static JobClient follow(String warehouse, String table, String millis) throws Exception {
    StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(1, new Configuration());
    StreamTableEnvironment t = StreamTableEnvironment.create(env);
    t.executeSql("CREATE CATALOG p WITH ('type' = 'paimon', 'warehouse' = '" + warehouse + "')");
    t.toChangelogStream(t.sqlQuery("SELECT `at` FROM p." + table + " /*+ OPTIONS('scan.mode' = 'latest', 'scan.remove-normalize' = 'true',"
        + " 'continuous.discovery-interval' = '" + millis + " ms') */")).addSink(new Lags());
    return env.executeAsync("tail");
  }
}
