import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.Schema;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.hadoop.HadoopCatalog;
import org.apache.iceberg.types.Types;

/**
 * Makes the Iceberg table db.t that Kafka Connect writes into, with the columns of the messages.
 *
 * <pre>ConnectTable WAREHOUSE</pre>
 */
public class ConnectTable {
  public static void main(String[] args) throws Exception {
    Schema schema = new Schema(
        Types.NestedField.required(1, "id", Types.LongType.get()),
        Types.NestedField.optional(2, "customer", Types.StringType.get()),
        Types.NestedField.optional(3, "email", Types.StringType.get()),
        Types.NestedField.optional(4, "product", Types.StringType.get()),
        Types.NestedField.optional(5, "city", Types.StringType.get()),
        Types.NestedField.optional(6, "qty", Types.IntegerType.get()),
        Types.NestedField.optional(7, "state", Types.IntegerType.get()),
        Types.NestedField.optional(8, "amount", Types.DecimalType.of(10, 2)),
        Types.NestedField.optional(9, "created_at", Types.TimestampType.withoutZone()),
        Types.NestedField.optional(10, "active", Types.BooleanType.get()));
    try (HadoopCatalog catalog = new HadoopCatalog(new Configuration(), args[0])) {
      catalog.createNamespace(Namespace.of("db"), Map.of());
      catalog.createTable(TableIdentifier.of("db", "t"), schema);
    }
  }
}
