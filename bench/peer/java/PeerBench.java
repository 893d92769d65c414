import java.io.*;
import java.lang.management.ManagementFactory;
import java.math.*;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.*;
import java.util.*;
import org.apache.paimon.catalog.*;
import org.apache.paimon.data.*;
import org.apache.paimon.disk.IOManager;
import org.apache.paimon.fs.Path;
import org.apache.paimon.options.Options;
import org.apache.paimon.reader.RecordReader;
import org.apache.paimon.schema.*;
import org.apache.paimon.table.*;
import org.apache.paimon.table.query.LocalTableQuery;
import org.apache.paimon.table.sink.*;
import org.apache.paimon.table.source.*;
import org.apache.paimon.types.*;

/**
 * Paimon's side of the comparison. Commands come on standard input, one a line; each is answered with one line of words.
 *
 * <pre>
 *   schema FILE                the schema of the tables, and no rows yet
 *   load FILE                  rows of one commit, as wire.go writes them
 *   create TABLE
 *   drop TABLE
 *   write TABLE                every loaded file in a commit of its own → wall seconds, processor seconds
 *   compact TABLE              full compaction → the same
 *   read TABLE                 → the same, rows, checksum
 *   churn TABLE KEYS COMMITS ROWS MILLIS   the rows of churn.go: every key, compacted; then commits of random updates
 *   open TABLE                 begins to write commits of such updates
 *   round KEYS FIRST COMMITS ROWS   commits, each with the compaction it asks for → the same
 *   close
 *   lookups TABLE KEYS N ROUND   looks N random keys up, one after the other → the same, rows that were found, checksum
 * </pre>
 */
public class PeerBench {
  /** The rows of a commit, column by column. */
  record Rows(int n, Column[] columns) {}

  /** A column's values: of a row the object that Paimon takes, or null. */
  interface Column {
    Object get(int row);
  }

  static final List<Rows> loaded = new ArrayList<>();
  static TableSchema schema;
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
      case "schema":
        schema = TableSchema.fromJson(Files.readString(Paths.get(w[1])));
        loaded.clear();
        return "ok";
      case "load":
        loaded.add(load(w[1]));
        return "ok";
      case "create":
        create(w[1]);
        return "ok";
      case "drop":
        catalog.dropTable(id(w[1]), false);
        return "ok";
      case "write":
        return timed(() -> write(w[1]));
      case "compact":
        return timed(() -> compact(w[1]));
      case "read":
        return timed(() -> read(w[1]));
      case "churn":
        return timed(() -> churn(w[1], Long.parseLong(w[2]), Integer.parseInt(w[3]), Integer.parseInt(w[4]), Long.parseLong(w[5])));
    }
    switch (w[0]) {
      case "open":
        StreamWriteBuilder b = catalog.getTable(id(w[1])).newStreamWriteBuilder();
        writer = b.newWrite();
        writer.withIOManager(io);
        committer = b.newCommit();
        return "ok";
      case "round":
        return timed(() -> round(Long.parseLong(w[1]), Integer.parseInt(w[2]), Integer.parseInt(w[3]), Integer.parseInt(w[4])));
      case "close":
        writer.close();
        committer.close();
        return "ok";
      case "lookups":
        return timed(() -> lookups(w[1], Long.parseLong(w[2]), Integer.parseInt(w[3]), Long.parseLong(w[4])));
    }
    throw new IllegalArgumentException(w[0]);
  }

  static StreamTableWrite writer;
  static StreamTableCommit committer;
  static LocalTableQuery query;

  static String round(long keys, int first, int commits, int rows) throws Exception {
    for (int c = first; c < first + commits; c++) {
      for (int j = 0; j < rows; j++) {
        long r = mix(((long) c << 32) + j);
        writer.write(churned(Long.remainderUnsigned(r, keys), r));
      }
      committer.commit(c, writer.prepareCommit(true, c));
    }
    return "";
  }

  /** Blocks of local files stay in memory, and are not compressed: that is the fastest for it. */
  static final Map<String, String> QUERY = Map.of("lookup.cache-max-memory-size", "3 gb", "lookup.cache-spill-compression", "none");

  static String lookups(String table, long keys, int n, long round) throws Exception {
    if (query == null) {
      FileStoreTable t = (FileStoreTable) catalog.getTable(id(table)).copy(QUERY);
      query = t.newLocalTableQuery().withIOManager(io);
      for (Split s : t.newReadBuilder().newScan().plan().splits()) {
        DataSplit d = (DataSplit) s;
        query.refreshFiles(d.partition(), d.bucket(), Collections.emptyList(), d.dataFiles());
      }
    }
    long found = 0, sum = 0;
    BinaryRow key = new BinaryRow(1);
    BinaryRowWriter w = new BinaryRowWriter(key);
    for (int i = 0; i < n; i++) {
      w.reset();
      w.writeLong(0, Long.remainderUnsigned(mix((round << 32) + i), keys + keys / 10));
      w.complete();
      InternalRow x = query.lookup(BinaryRow.EMPTY_ROW, 0, key);
      if (x == null) continue;
      found++;
      sum += x.getLong(1) + x.getString(2).getSizeInBytes();
    }
    return " " + found + " " + sum;
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
    try (FileChannel f = FileChannel.open(Paths.get(file))) {
      ByteBuffer in = f.map(FileChannel.MapMode.READ_ONLY, 0, f.size());
      int n = in.getInt();
      List<DataField> fields = schema.fields();
      Column[] columns = new Column[fields.size()];
      for (int c = 0; c < columns.length; c++) columns[c] = column(in, fields.get(c).type(), n);
      return new Rows(n, columns);
    }
  }

  static Column column(ByteBuffer in, DataType type, int n) {
    byte[] nul = new byte[n];
    in.get(nul);
    Column c = values(in, type, n);
    return row -> nul[row] != 0 ? null : c.get(row);
  }

  static Column values(ByteBuffer in, DataType type, int n) {
    switch (type.getTypeRoot()) {
      case BIGINT: {
        long[] v = longs(in, n);
        return row -> v[row];
      }
      case TIMESTAMP_WITHOUT_TIME_ZONE: {
        long[] v = longs(in, n);
        return row -> Timestamp.fromMicros(v[row]);
      }
      case INTEGER: {
        int[] v = ints(in, n);
        return row -> v[row];
      }
      case DOUBLE: {
        double[] v = new double[n];
        for (int j = 0; j < n; j++) v[j] = in.getDouble();
        return row -> v[row];
      }
      case BOOLEAN: {
        byte[] v = new byte[n];
        in.get(v);
        return row -> v[row] == 1;
      }
      case DECIMAL:
        return decimals(in, (DecimalType) type, n);
      case VARCHAR: {
        int[] of = ints(in, n + 1);
        byte[] bytes = new byte[of[n]];
        in.get(bytes);
        return row -> BinaryString.fromBytes(bytes, of[row], of[row + 1] - of[row]);
      }
      default:
        return nested(in, type, n);
    }
  }

  static Column decimals(ByteBuffer in, DecimalType type, int n) {
    int p = type.getPrecision(), s = type.getScale();
    if (Decimal.isCompact(p)) {
      long[] v = longs(in, n);
      return row -> Decimal.fromUnscaledLong(v[row], p, s);
    }
    BigDecimal[] v = new BigDecimal[n];
    byte[] b = new byte[16];
    for (int j = 0; j < n; j++) {
      in.get(b);
      v[j] = new BigDecimal(new BigInteger(b), s);
    }
    return row -> Decimal.fromBigDecimal(v[row], p, s);
  }

  static Column nested(ByteBuffer in, DataType type, int n) {
    if (type instanceof RowType) {
      List<DataType> types = ((RowType) type).getFieldTypes();
      Column[] c = new Column[types.size()];
      for (int f = 0; f < c.length; f++) c[f] = column(in, types.get(f), n);
      return row -> row(c, row);
    }
    int[] of = ints(in, n + 1);
    if (type instanceof ArrayType) {
      Column c = column(in, ((ArrayType) type).getElementType(), of[n]);
      return row -> {
        Object[] v = new Object[of[row + 1] - of[row]];
        for (int j = 0; j < v.length; j++) v[j] = c.get(of[row] + j);
        return new GenericArray(v);
      };
    }
    MapType map = (MapType) type;
    Column keys = column(in, map.getKeyType(), of[n]), items = column(in, map.getValueType(), of[n]);
    return row -> {
      Map<Object, Object> v = new HashMap<>();
      for (int j = of[row]; j < of[row + 1]; j++) v.put(keys.get(j), items.get(j));
      return new GenericMap(v);
    };
  }

  static long[] longs(ByteBuffer in, int n) {
    long[] v = new long[n];
    for (int j = 0; j < n; j++) v[j] = in.getLong();
    return v;
  }

  static int[] ints(ByteBuffer in, int n) {
    int[] v = new int[n];
    for (int j = 0; j < n; j++) v[j] = in.getInt();
    return v;
  }

  static GenericRow row(Column[] columns, int row) {
    GenericRow out = new GenericRow(columns.length);
    for (int c = 0; c < columns.length; c++) out.setField(c, columns[c].get(row));
    return out;
  }

  static void create(String table) throws Exception {
    Schema.Builder b = Schema.newBuilder().primaryKey(schema.primaryKeys()).options(schema.options());
    for (DataField f : schema.fields()) b.column(f.name(), f.type());
    catalog.createTable(id(table), b.build(), false);
  }

  static Identifier id(String table) {
    return Identifier.create("db", table);
  }

  static String write(String table) throws Exception {
    Table t = catalog.getTable(id(table));
    for (Rows r : loaded) {
      BatchWriteBuilder b = t.newBatchWriteBuilder();
      try (BatchTableWrite w = b.newWrite(); BatchTableCommit c = b.newCommit()) {
        w.withIOManager(io);
        for (int j = 0; j < r.n(); j++) w.write(row(r.columns(), j));
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

  static String churn(String table, long keys, int commits, int rows, long every) throws Exception {
    StreamWriteBuilder b = catalog.getTable(id(table)).newStreamWriteBuilder();
    try (StreamTableWrite w = b.newWrite(); StreamTableCommit c = b.newCommit()) {
      w.withIOManager(io);
      long n = 0;
      for (long k = 0; k < keys; k++) w.write(churned(k, mix((-1L << 32) + k)));
      c.commit(n, w.prepareCommit(true, n));
      n++;
      w.compact(BinaryRow.EMPTY_ROW, 0, true);
      c.commit(n, w.prepareCommit(true, n));
      long begin = System.nanoTime();
      for (int i = 0; i < commits; i++) {
        long pause = i * every - (System.nanoTime() - begin) / 1_000_000;
        if (pause > 0) Thread.sleep(pause);
        for (int j = 0; j < rows; j++) {
          long r = mix(((long) i << 32) + j);
          w.write(churned(Long.remainderUnsigned(r, keys), r));
        }
        n++;
        c.commit(n, w.prepareCommit(false, n));
      }
    }
    return "";
  }

  static GenericRow churned(long key, long r) {
    double d = (r >>> 11) % 1_000_000 / 100.0;
    return GenericRow.of(key, r, BinaryString.fromString(Long.toHexString(mix(r))), d);
  }

  /** The finalizer of splitmix64. */
  static long mix(long x) {
    x += 0x9e3779b97f4a7c15L;
    x = (x ^ x >>> 30) * 0xbf58476d1ce4e5b9L;
    x = (x ^ x >>> 27) * 0x94d049bb133111ebL;
    return x ^ x >>> 31;
  }

  static String read(String table) throws Exception {
    ReadBuilder b = catalog.getTable(id(table)).newReadBuilder();
    long rows = 0, sum = 0;
    DataType[] types = schema.fields().stream().map(DataField::type).toArray(DataType[]::new);
    try (RecordReader<InternalRow> reader = b.newRead().withIOManager(io).createReader(b.newScan().plan())) {
      RecordReader.RecordIterator<InternalRow> it;
      while ((it = reader.readBatch()) != null) {
        for (InternalRow x; (x = it.next()) != null; rows++) {
          for (int c = 0; c < types.length; c++) if (!x.isNullAt(c)) sum += (c + 1) * cell(x, c, types[c]);
        }
        it.releaseBatch();
      }
    }
    return " " + rows + " " + sum;
  }

  /** What a cell that is not null adds to the checksum: sum.go has the same. */
  static long cell(DataGetters x, int c, DataType type) {
    switch (type.getTypeRoot()) {
      case BIGINT:
        return x.getLong(c);
      case INTEGER:
        return x.getInt(c);
      case TIMESTAMP_WITHOUT_TIME_ZONE:
        return x.getTimestamp(c, 6).toMicros();
      case DOUBLE:
        return Math.round(x.getDouble(c) * 100);
      case BOOLEAN:
        return x.getBoolean(c) ? 11 : 13;
      case VARCHAR:
        return x.getString(c).getSizeInBytes();
      case DECIMAL:
        DecimalType d = (DecimalType) type;
        Decimal v = x.getDecimal(c, d.getPrecision(), d.getScale());
        return v.isCompact() ? v.toUnscaledLong() : v.toBigDecimal().unscaledValue().longValue();
      case ROW: {
        List<DataType> types = ((RowType) type).getFieldTypes();
        InternalRow r = x.getRow(c, types.size());
        long sum = 0;
        for (int f = 0; f < types.size(); f++) if (!r.isNullAt(f)) sum += cell(r, f, types.get(f));
        return sum;
      }
      case ARRAY:
        return cells(x.getArray(c), ((ArrayType) type).getElementType());
      case MAP: {
        InternalMap m = x.getMap(c);
        MapType t = (MapType) type;
        return cells(m.keyArray(), t.getKeyType()) + cells(m.valueArray(), t.getValueType()) - m.size();
      }
      default:
        throw new IllegalArgumentException("no checksum of " + type);
    }
  }

  /** Elements of an array and their number. */
  static long cells(InternalArray a, DataType type) {
    long sum = a.size();
    for (int j = 0; j < a.size(); j++) if (!a.isNullAt(j)) sum += cell(a, j, type);
    return sum;
  }
}
