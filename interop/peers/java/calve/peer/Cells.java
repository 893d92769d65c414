package calve.peer;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.paimon.data.BinaryString;
import org.apache.paimon.data.Decimal;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.data.Timestamp;
import org.apache.paimon.types.DataField;
import org.apache.paimon.types.DataType;
import org.apache.paimon.types.DecimalType;
import org.apache.paimon.types.RowKind;
import org.apache.paimon.types.RowType;

import java.math.BigDecimal;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.format.DateTimeFormatter;
import java.util.HexFormat;

/** Paimon's internal values to the normal form of interop/doc.go and back, for every primitive type. */
final class Cells {
    private static final DateTimeFormatter MOMENT = DateTimeFormatter.ofPattern("yyyy-MM-dd'T'HH:mm:ss.SSSSSSSSS");

    private Cells() {}

    static ObjectNode toJson(InternalRow row, RowType type) {
        ObjectNode out = Worker.JSON.createObjectNode();
        for (int i = 0; i < type.getFieldCount(); i++) {
            DataField field = type.getFields().get(i);
            Object value = InternalRow.createFieldGetter(field.type(), i).getFieldOrNull(row);
            out.set(field.name(), toJson(value, field.type()));
        }
        return out;
    }

    static JsonNode toJson(Object value, DataType type) {
        JsonNodeFactory json = JsonNodeFactory.instance;
        if (value == null) {
            return json.nullNode();
        }
        switch (type.getTypeRoot()) {
            case BOOLEAN:
                return json.booleanNode((Boolean) value);
            case TINYINT:
            case SMALLINT:
            case INTEGER:
            case BIGINT:
            case TIME_WITHOUT_TIME_ZONE:
                return json.numberNode(((Number) value).longValue());
            case FLOAT:
                return Float.isFinite((Float) value) ? json.numberNode((Float) value) : json.textNode(value.toString());
            case DOUBLE:
                return Double.isFinite((Double) value) ? json.numberNode((Double) value) : json.textNode(value.toString());
            case DECIMAL:
                return json.textNode(((Decimal) value).toBigDecimal().toPlainString());
            case BINARY:
            case VARBINARY:
                return json.textNode(HexFormat.of().formatHex((byte[]) value));
            case DATE:
                return json.textNode(LocalDate.ofEpochDay((Integer) value).toString());
            case TIMESTAMP_WITHOUT_TIME_ZONE:
            case TIMESTAMP_WITH_LOCAL_TIME_ZONE:
                return json.textNode(((Timestamp) value).toLocalDateTime().format(MOMENT));
            case CHAR:
            case VARCHAR:
                return json.textNode(value.toString());
            default:
                throw new IllegalArgumentException("no normal form for " + type);
        }
    }

    static GenericRow fromJson(JsonNode row, RowType type, RowKind kind) {
        GenericRow out = new GenericRow(kind, type.getFieldCount());
        for (int i = 0; i < type.getFieldCount(); i++) {
            DataField field = type.getFields().get(i);
            out.setField(i, fromJson(row.get(field.name()), field.type()));
        }
        return out;
    }

    static Object fromJson(JsonNode value, DataType type) {
        if (value == null || value.isNull()) {
            return null;
        }
        String text = value.asText();
        switch (type.getTypeRoot()) {
            case BOOLEAN:
                return Boolean.parseBoolean(text);
            case TINYINT:
                return Byte.parseByte(text);
            case SMALLINT:
                return Short.parseShort(text);
            case INTEGER:
            case TIME_WITHOUT_TIME_ZONE:
                return Integer.parseInt(text);
            case BIGINT:
                return Long.parseLong(text);
            case FLOAT:
                return Float.parseFloat(text);
            case DOUBLE:
                return Double.parseDouble(text);
            case DECIMAL: {
                DecimalType decimal = (DecimalType) type;
                return Decimal.fromBigDecimal(new BigDecimal(text), decimal.getPrecision(), decimal.getScale());
            }
            case BINARY:
            case VARBINARY:
                return HexFormat.of().parseHex(text);
            case DATE:
                return (int) LocalDate.parse(text).toEpochDay();
            case TIMESTAMP_WITHOUT_TIME_ZONE:
            case TIMESTAMP_WITH_LOCAL_TIME_ZONE:
                return Timestamp.fromLocalDateTime(LocalDateTime.parse(text));
            case CHAR:
            case VARCHAR:
                return BinaryString.fromString(text);
            default:
                throw new IllegalArgumentException("no normal form for " + type);
        }
    }
}
