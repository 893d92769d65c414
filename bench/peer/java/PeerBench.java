import java.io.*;
import java.lang.management.ManagementFactory;
import java.nio.file.*;
import java.util.*;
import org.apache.paimon.catalog.*;
import org.apache.paimon.data.*;
import org.apache.paimon.disk.IOManager;
import org.apache.paimon.fs.Path;
import org.apache.paimon.options.Options;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.schema.Schema;
import org.apache.paimon.table.*;
import org.apache.paimon.table.sink.*;
import org.apache.paimon.table.source.*;
import org.apache.paimon.types.*;

/**
 * Paimon's side of the comparison. Commands come on standard input, one a line; each is answered with one line of words.
 *
 * <pre>
 *   load FILE                  rows of one commit, as data.go writes them
 *   create TABLE key=value…
 *   write TABLE                every loaded file in a commit of its own → wall seconds, processor seconds
 *   compact TABLE              full compaction → the same
 *   read TABLE                 → the same, rows, checksum
 * </pre>
 */
public class PeerBench {
  static final class Rows {
    int n;
    byte[] null_, bool;
    long[] k, ts, dec;
    byte[][] s1, s2;
    double[] d;
    int[] i;
  }

  static final List<Rows> loaded = new ArrayList<>();
  static Catalog catalog;
  static IOManager io;

  public static void main(String[] args) throws Exception {
    PrintStream out = System.out;
    System.setOut(System.err);
    Options o = new Options();
    o.set("warehouse", args[0]);
    catalog = CatalogFactory.createCatalog(CatalogContext.create(o));
    catalog.createDatabase("db", true);
    io = IOManager.create(args[1]);
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    for (String line; (line = in.readLine()) != null; ) {
      String[] w = line.split(" ");
      try {
        out.println(answer(w));
      } catch (Throwable t) {
        t.printStackTrace();
        out.println("error " + t);
      }
      out.flush();
    }
  }

  static String answer(String[] w) throws Exception {
    switch (w[0]) {
      case "load":
        loaded.add(load(w[1]));
        return "ok";
      case "create":
        create(w);
        return "ok";
      case "write":
        return timed(() -> write(w[1]));
      case "compact":
        return timed(() -> compact(w[1]));
      case "read":
        return timed(() -> read(w[1]));
    }
    throw new IllegalArgumentException(w[0]);
  }

  interface Work {
    String run() throws Exception;
  }

  static String timed(Work work) throws Exception {
    com.sun.management.OperatingSystemMXBean os = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    long wall = System.nanoTime(), cpu = os.getProcessCpuTime();
    String more = work.run();
    return (System.nanoTime() - wall) / 1e9 + " " + (os.getProcessCpuTime() - cpu) / 1e9 + more;
  }

  static Rows load(String file) throws IOException {
    try (DataInputStream in = new DataInputStream(new BufferedInputStream(Files.newInputStream(Paths.get(file)), 1 << 20))) {
      Rows r = new Rows();
      int n = r.n = in.readInt();
      r.null_ = new byte[n]; r.bool = new byte[n]; r.k = new long[n]; r.ts = new long[n]; r.dec = new long[n];
      r.s1 = new byte[n][]; r.s2 = new byte[n][]; r.d = new double[n]; r.i = new int[n];
      for (int j = 0; j < n; j++) {
        r.k[j] = in.readLong();
        r.null_[j] = in.readByte();
        r.s1[j] = in.readNBytes(in.readUnsignedByte());
        r.s2[j] = in.readNBytes(in.readUnsignedByte());
        r.d[j] = in.readDouble(); r.ts[j] = in.readLong(); r.dec[j] = in.readLong(); r.i[j] = in.readInt(); r.bool[j] = in.readByte();
      }
      return r;
    }
  }

  static void create(String[] w) throws Exception {
    Schema.Builder b = Schema.newBuilder().column("k", DataTypes.BIGINT().notNull()).column("s1", DataTypes.STRING())
        .column("s2", DataTypes.STRING()).column("d", DataTypes.DOUBLE()).column("ts", DataTypes.TIMESTAMP(6))
        .column("dec", DataTypes.DECIMAL(18, 2)).column("i", DataTypes.INT()).column("b", DataTypes.BOOLEAN()).primaryKey("k");
    for (int j = 2; j < w.length; j++) {
      String[] kv = w[j].split("=", 2);
      b.option(kv[0], kv[1]);
    }
    catalog.createTable(id(w[1]), b.build(), false);
  }

  static Identifier id(String table) {
    return Identifier.create("db", table);
  }

  static InternalRow row(Rows r, int j) {
    int nul = r.null_[j];
    return GenericRow.of(r.k[j],
        (nul & 1) != 0 ? null : BinaryString.fromBytes(r.s1[j]), (nul & 2) != 0 ? null : BinaryString.fromBytes(r.s2[j]),
        (nul & 4) != 0 ? null : (Object) r.d[j], (nul & 8) != 0 ? null : Timestamp.fromMicros(r.ts[j]),
        (nul & 16) != 0 ? null : Decimal.fromUnscaledLong(r.dec[j], 18, 2), (nul & 32) != 0 ? null : (Object) r.i[j],
        (nul & 64) != 0 ? null : (Object) (r.bool[j] == 1));
  }

  static String write(String table) throws Exception {
    Table t = catalog.getTable(id(table));
    for (Rows r : loaded) {
      BatchWriteBuilder b = t.newBatchWriteBuilder();
      try (BatchTableWrite w = b.newWrite(); BatchTableCommit c = b.newCommit()) {
        w.withIOManager(io);
        for (int j = 0; j < r.n; j++) w.write(row(r, j));
        c.commit(w.prepareCommit());
      }
    }
    return "";
  }

  static String compact(String table) throws Exception {
    Table t = catalog.getTable(id(table)).copy(Map.of("write-only", "false"));
    BatchWriteBuilder b = t.newBatchWriteBuilder();
    try (BatchTableWrite w = b.newWrite(); BatchTableCommit c = b.newCommit()) {
      w.withIOManager(io);
      w.compact(BinaryRow.EMPTY_ROW, 0, true);
      c.commit(w.prepareCommit());
    }
    return "";
  }

  static String read(String table) throws Exception {
    ReadBuilder b = catalog.getTable(id(table)).newReadBuilder();
    long rows = 0, sum = 0;
    try (RecordReader<InternalRow> reader = b.newRead().withIOManager(io).createReader(b.newScan().plan())) {
      RecordReader.RecordIterator<InternalRow> it;
      while ((it = reader.readBatch()) != null) {
        for (InternalRow x; (x = it.next()) != null; rows++) {
          sum += x.getLong(0);
          if (!x.isNullAt(1)) sum += x.getString(1).getSizeInBytes();
          if (!x.isNullAt(2)) sum += 3L * x.getString(2).getSizeInBytes();
          if (!x.isNullAt(3)) sum += Math.round(x.getDouble(3) * 100);
          if (!x.isNullAt(4)) sum += x.getTimestamp(4, 6).toMicros();
          if (!x.isNullAt(5)) sum += 5 * x.getDecimal(5, 18, 2).toUnscaledLong();
          if (!x.isNullAt(6)) sum += 7L * x.getInt(6);
          if (!x.isNullAt(7)) sum += x.getBoolean(7) ? 11 : 13;
        }
        it.releaseBatch();
      }
    }
    return " " + rows + " " + sum;
  }
}
