package calve.peer;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.paimon.data.BinaryString;
import org.apache.paimon.data.Decimal;
import org.apache.paimon.data.GenericArray;
import org.apache.paimon.data.GenericMap;
import org.apache.paimon.data.GenericRow;
import org.apache.paimon.data.InternalArray;
import org.apache.paimon.data.InternalMap;
import org.apache.paimon.data.InternalRow;
import org.apache.paimon.data.Timestamp;
import org.apache.paimon.data.variant.GenericVariant;
import org.apache.paimon.data.variant.Variant;
import org.apache.paimon.types.ArrayType;
import org.apache.paimon.types.DataField;
import org.apache.paimon.types.DataType;
import org.apache.paimon.types.DecimalType;
import org.apache.paimon.types.IntType;
import org.apache.paimon.types.MapType;
import org.apache.paimon.types.MultisetType;
import org.apache.paimon.types.RowKind;
import org.apache.paimon.types.RowType;

import java.math.BigDecimal;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Paimon's internal values to the normal form of interop/doc.go and back. */
final class Cells {
    private static final DateTimeFormatter MOMENT = DateTimeFormatter.ofPattern("uuuu-MM-dd'T'HH:mm:ss.SSSSSSSSS");

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
                return json.textNode(moment((Timestamp) value).format(MOMENT));
            case CHAR:
            case VARCHAR:
                return json.textNode(value.toString());
            case ARRAY: {
                ArrayNode list = json.arrayNode();
                elements((InternalArray) value, ((ArrayType) type).getElementType()).forEach(list::add);
                return list;
            }
            case MAP: {
                MapType map = (MapType) type;
                return pairs((InternalMap) value, map.getKeyType(), map.getValueType());
            }
            case MULTISET:
                return pairs((InternalMap) value, ((MultisetType) type).getElementType(), new IntType());
            case ROW:
                return toJson((InternalRow) value, (RowType) type);
            case VARIANT: {
                Variant variant = (Variant) value;
                ObjectNode parts = json.objectNode();
                parts.put("value", HexFormat.of().formatHex(variant.value()));
                return parts.put("metadata", HexFormat.of().formatHex(variant.metadata()));
            }
            default:
                throw new IllegalArgumentException("no normal form for " + type);
        }
    }

    /** Timestamp.toLocalDateTime counts the days in 32 bits: it is wrong from the year 5881580 on. */
    private static LocalDateTime moment(Timestamp value) {
        long millis = value.getMillisecond();
        int nanos = (int) Math.floorMod(millis, 1000L) * 1_000_000 + value.getNanoOfMillisecond();
        return LocalDateTime.ofEpochSecond(Math.floorDiv(millis, 1000L), nanos, ZoneOffset.UTC);
    }

    private static List<JsonNode> elements(InternalArray array, DataType type) {
        InternalArray.ElementGetter getter = InternalArray.createElementGetter(type);
        List<JsonNode> out = new ArrayList<>();
        for (int i = 0; i < array.size(); i++) {
            out.add(toJson(getter.getElementOrNull(array, i), type));
        }
        return out;
    }

    /** A map as pairs of key and value. */
    private static ArrayNode pairs(InternalMap map, DataType keyType, DataType valueType) {
        List<JsonNode> keys = elements(map.keyArray(), keyType);
        List<JsonNode> values = elements(map.valueArray(), valueType);
        ArrayNode out = JsonNodeFactory.instance.arrayNode();
        for (int i = 0; i < keys.size(); i++) {
            out.addArray().add(keys.get(i)).add(values.get(i));
        }
        return out;
    }

    private static GenericMap mapFromJson(JsonNode pairs, DataType keyType, DataType valueType) {
        Map<Object, Object> out = new LinkedHashMap<>();
        for (JsonNode pair : pairs) {
            out.put(fromJson(pair.get(0), keyType), fromJson(pair.get(1), valueType));
        }
        return new GenericMap(out);
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
            case ARRAY: {
                Object[] out = new Object[value.size()];
                for (int i = 0; i < out.length; i++) {
                    out[i] = fromJson(value.get(i), ((ArrayType) type).getElementType());
                }
                return new GenericArray(out);
            }
            case MAP:
                return mapFromJson(value, ((MapType) type).getKeyType(), ((MapType) type).getValueType());
            case MULTISET:
                return mapFromJson(value, ((MultisetType) type).getElementType(), new IntType());
            case ROW:
                return fromJson(value, (RowType) type, RowKind.INSERT);
            case VARIANT:
                return new GenericVariant(HexFormat.of().parseHex(value.get("value").asText()),
                        HexFormat.of().parseHex(value.get("metadata").asText()));
            default:
                throw new IllegalArgumentException("no normal form for " + type);
        }
    }
}
