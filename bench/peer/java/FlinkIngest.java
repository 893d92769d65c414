import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;

/**
 * Flink's side of the comparison of ingest: a job in this process that reads a topic of JSON messages to where it ends now, into
 * a Paimon table with a primary key and two buckets, with a commit every ten seconds.
 *
 * <pre>FlinkIngest BROKER TOPIC WAREHOUSE</pre>
 */
public class FlinkIngest {
  static final String COLUMNS =
      "id BIGINT NOT NULL, customer STRING, email STRING, product STRING, city STRING, qty INT, `state` INT, amount DECIMAL(10, 2),"
          + " created_at TIMESTAMP(6), active BOOLEAN";

  public static void main(String[] args) throws Exception {
    Configuration conf = new Configuration();
    conf.setString("execution.checkpointing.interval", "10 s");
    StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(2, conf);
    StreamTableEnvironment t = StreamTableEnvironment.create(env);
    t.executeSql("CREATE TABLE orders (" + COLUMNS + ") WITH ('connector' = 'kafka', 'topic' = '" + args[1]
        + "', 'properties.bootstrap.servers' = '" + args[0] + "', 'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset',"
        + " 'format' = 'json', 'json.timestamp-format.standard' = 'SQL')");
    t.executeSql("CREATE CATALOG p WITH ('type' = 'paimon', 'warehouse' = '" + args[2] + "')");
    t.executeSql("CREATE DATABASE IF NOT EXISTS p.db");
    t.executeSql("CREATE TABLE p.db.t (" + COLUMNS + ", PRIMARY KEY (id) NOT ENFORCED) WITH ('bucket' = '2')");
    t.executeSql("INSERT INTO p.db.t SELECT * FROM orders").await();
    System.exit(0);
  }
}
