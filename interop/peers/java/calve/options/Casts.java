package calve.options;

import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.apache.paimon.casting.CastExecutor;
import org.apache.paimon.casting.CastExecutors;
import org.apache.paimon.data.BinaryString;
import org.apache.paimon.data.Decimal;
import org.apache.paimon.data.Timestamp;
import org.apache.paimon.types.DataType;
import org.apache.paimon.types.DataTypeCasts;
import org.apache.paimon.types.DataTypeChecks;
import org.apache.paimon.types.DataTypes;
import org.apache.paimon.types.DecimalType;

/**
 * Prints what Paimon's casts make of some values of each primitive type, one pair of types a line, as JSON: the file
 * internal/testdata/casts.jsonl. Timestamps are written as milliseconds and nanoseconds of the millisecond, binaries in
 * hexadecimal. Run it in UTC.
 */
final class Casts {
    private static final DataType[] TYPES = {
        DataTypes.BOOLEAN(), DataTypes.TINYINT(), DataTypes.SMALLINT(), DataTypes.INT(), DataTypes.BIGINT(),
        DataTypes.FLOAT(), DataTypes.DOUBLE(), DataTypes.DECIMAL(10, 2), DataTypes.DECIMAL(38, 10),
        DataTypes.DECIMAL(5, 0), DataTypes.DECIMAL(20, 20), DataTypes.DECIMAL(18, 9), DataTypes.CHAR(6),
        DataTypes.VARCHAR(6), DataTypes.STRING(), DataTypes.BINARY(4), DataTypes.VARBINARY(3), DataTypes.BYTES(),
        DataTypes.DATE(), DataTypes.TIME(), DataTypes.TIME(3), DataTypes.TIMESTAMP(0), DataTypes.TIMESTAMP(1),
        DataTypes.TIMESTAMP(3), DataTypes.TIMESTAMP(4), DataTypes.TIMESTAMP(6), DataTypes.TIMESTAMP(9),
        DataTypes.TIMESTAMP_WITH_LOCAL_TIME_ZONE(3), DataTypes.TIMESTAMP_WITH_LOCAL_TIME_ZONE(6),
        DataTypes.TIMESTAMP_WITH_LOCAL_TIME_ZONE(9)
    };

    private static final String[] DECIMALS = {
        "0", "1", "-1", "0.5", "1.5", "2.5", "-2.5", "0.05", "12.34", "-12.34", "99999", "100000",
        "123456789.987654321", "999999999.999999999", "12345678.12", "-99999999.99",
        "1234567890123456789012345678.0123456789", "0.12345678901234567890", "127", "128", "32768", "2147483648",
        "9223372036854775808", "0.0000000001", "0.00"
    };

    private static final String[] WORDS = {
        "", "a", "abc", "hello", "w\u00f6rld", " 12 ", "12", "-7", "300", "3.7", "1e3", "-0", "+5", "0x10", "NaN",
        "Infinity", "true", "TRUE", "t", "yes", "1", "0", "f", "no", "N", "False", "on", "y"
    };

    private static final String[] TEXTS = {
        "hello world", "\ud83d\ude00".repeat(7), "123456789.125", "0.005", "1.005", "99999.5", "-12.345",
        "1234567890123456789012345678901234567890", "9223372036854775807", "9223372036854775808", "-129", "32768",
        "2147483648", "1e400", "3.4028236E38", "1e-400", ".5", "5.", "--1", "1 2", "1_000", "1,5", "2024-05-14",
        "2024-5-4", "1969-12-31", "0001-01-01", "9999-12-31", "2024-02-30", "2023-02-29", "2024-13-01", "20240514",
        "2024", "2024-05", "2024-05-14 ", "2024-05-14 12:34:56", "2024-05-14T12:34:56", "2024-05-14 12:34",
        "2024-05-14 12:34:56.123", "2024-05-14 12:34:56.123456", "2024-05-14 12:34:56.123456789",
        "2024-05-14 12:34:56.1234567891", "1969-12-31 23:59:59.999999999", "2024-05-14 12:34:56Z",
        "2024-05-14 24:00:00", "2024-05-14 12", "12:34:56", "12:34:56.789", "12:34:56.789123", "12:34", "1:2:3", "12",
        "25:00:00", "23:59:60", " 12:34:56 ", " true ", "FALSE ", "1.0d", "1f", "1L", "0b1", "-.5e-3", "1e5", "1E+5",
        "infinity", "nan", "-Infinity", "+Infinity", "t r", "12.", "2024-05-14 1:2:3", "-0001-01-01", "10000-01-01",
        "2024-05-14 12:34:56.1"
    };

    private static final String[] CHARS = {"a", "abcdef", "12", "12    ", "w\u00f6rld", "true"};

    private static final long[][] TIMES = {
        {0, 0}, {1715690096123L, 456789}, {1715690096000L, 0}, {-1, 999999}, {-1000, 0}, {-62135596800000L, 0},
        {253402300799999L, 999999}, {1715690096100L, 0}, {1715690096120L, 0}, {86399999L, 123456}, {1715644800000L, 0},
        {2147483648000L, 500000}, {-1500, 1}, {999, 999999}
    };

    private Casts() {}

    public static void main(String[] args) {
        for (DataType from : TYPES) {
            for (DataType to : TYPES) {
                if (!from.equals(to)) {
                    System.out.println(line(from, to));
                }
            }
        }
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static String line(DataType from, DataType to) {
        CastExecutor cast = CastExecutors.resolve(from, to);
        boolean explicit = DataTypeCasts.supportsCast(from, to, true) && cast != null;
        StringBuilder out = new StringBuilder("{\"from\":" + quote(from.asSQLString()) + ",\"to\":"
                + quote(to.asSQLString()) + ",\"implicit\":" + (DataTypeCasts.supportsCast(from, to, false) && cast != null)
                + ",\"explicit\":" + explicit);
        if (explicit) {
            List<String> pairs = new ArrayList<>();
            for (Object value : values(from)) {
                String result;
                try {
                    result = show(cast.cast(value));
                } catch (RuntimeException e) {
                    result = "{\"error\":" + quote(e.getClass().getSimpleName()) + "}";
                }
                pairs.add("[" + show(value) + "," + result + "]");
            }
            out.append(",\"values\":[").append(String.join(",", pairs)).append("]");
        }
        return out.append("}").toString();
    }

    private static String show(Object value) {
        if (value == null) {
            return "null";
        }
        if (value instanceof byte[]) {
            StringBuilder hex = new StringBuilder();
            for (byte b : (byte[]) value) {
                hex.append(String.format("%02x", b));
            }
            return quote(hex.toString());
        }
        if (value instanceof Timestamp) {
            Timestamp time = (Timestamp) value;
            return quote(time.getMillisecond() + ":" + time.getNanoOfMillisecond());
        }
        return quote(value instanceof Decimal ? ((Decimal) value).toBigDecimal().toPlainString() : value.toString());
    }

    private static String quote(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < 0x20 || c > 0x7e) {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        return out.append('"').toString();
    }

    private static List<Object> values(DataType type) {
        List<Object> out = new ArrayList<>();
        switch (type.getTypeRoot()) {
            case BOOLEAN:
                return List.of(true, false);
            case TINYINT:
                Stream.of(0, 1, -1, 127, -128, 42).forEach(v -> out.add(v.byteValue()));
                return out;
            case SMALLINT:
                Stream.of(0, 1, -1, 127, 128, -129, 32767, -32768, 300).forEach(v -> out.add(v.shortValue()));
                return out;
            case INTEGER:
                return List.of(0, 1, -1, 127, 128, 32768, -32769, 2147483647, -2147483648, 123456, 86399999, 19858);
            case BIGINT:
                return List.of(0L, 1L, -1L, 255L, 65536L, 2147483648L, -2147483649L, Long.MAX_VALUE, Long.MIN_VALUE,
                        9007199254740993L, 1716000000L, 1716000000123L, -62135596800L);
            case FLOAT:
                return List.of(0f, -0f, 1f, -1f, 0.1f, 1.5f, 2.5f, -2.5f, 127.9f, 1e10f, 3.4028235E38f, 1.4E-45f,
                        123456.789f, 1e7f, 9999999f, 0.001f, 9.9e-4f, 16777216f, Float.NaN, Float.POSITIVE_INFINITY,
                        Float.NEGATIVE_INFINITY);
            case DOUBLE:
                return List.of(0d, -0.0, 1d, -1d, 0.1, 1.005, 2.5, -2.5, 127.9, -128.9, 1e10, 1e19, -1e19,
                        Double.MAX_VALUE, Double.MIN_VALUE, 123456.789, 1e7, 9999999d, 0.001, 9.9e-4, 1e21, 1.0E-5,
                        12345678.125, 99999999.995, 2147483647.5, Double.NaN, Double.POSITIVE_INFINITY,
                        Double.NEGATIVE_INFINITY);
            case DECIMAL:
                DecimalType decimal = (DecimalType) type;
                for (String text : DECIMALS) {
                    Decimal v = Decimal.fromBigDecimal(new BigDecimal(text), decimal.getPrecision(), decimal.getScale());
                    if (v != null) {
                        out.add(v);
                    }
                }
                return out;
            case CHAR:
                Stream.of(CHARS).forEach(v -> out.add(BinaryString.fromString(v)));
                return out;
            case VARCHAR:
                Stream.of(WORDS).forEach(v -> out.add(BinaryString.fromString(v)));
                if (type.equals(DataTypes.STRING())) {
                    Stream.of(TEXTS).forEach(v -> out.add(BinaryString.fromString(v)));
                }
                return out;
            case BINARY:
            case VARBINARY:
                Stream.of("", "a", "abc", "abcd", "abcdef", "w\u00f6").forEach(v -> out.add(v.getBytes(StandardCharsets.UTF_8)));
                out.add(new byte[] {(byte) 0xff, 0, 1});
                return out;
            case DATE:
                return List.of(0, 1, -1, 19857, -719162, 2932896, -141427, 100000);
            case TIME_WITHOUT_TIME_ZONE:
                return List.of(0, 1, 1000, 86399999, 45296789, 45296000, 45240000, 45296100);
            default:
                for (long[] time : TIMES) {
                    out.add(cut(time[0], (int) time[1], DataTypeChecks.getPrecision(type)));
                }
                return out;
        }
    }

    private static Timestamp cut(long millis, int nanos, int precision) {
        if (precision <= 3) {
            return Timestamp.fromEpochMillis(precision == 0 ? Math.floorDiv(millis, 1000L) * 1000 : millis, 0);
        }
        return Timestamp.fromEpochMillis(millis, precision <= 6 ? nanos / 1000 * 1000 : nanos);
    }
}
