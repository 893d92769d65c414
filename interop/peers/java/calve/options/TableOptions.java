package calve.options;

import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.Arrays;
import org.apache.paimon.CoreOptions;
import org.apache.paimon.iceberg.IcebergOptions;
import org.apache.paimon.options.ConfigOption;
import org.apache.paimon.options.FallbackKey;

/** Prints the key of every table option of Paimon, one a line, with the word "fixed" behind it if it is immutable. */
final class TableOptions {
    private TableOptions() {}

    public static void main(String[] args) throws IllegalAccessException {
        for (Class<?> owner : new Class<?>[] {CoreOptions.class, IcebergOptions.class}) {
            for (Field field : owner.getDeclaredFields()) {
                if (!Modifier.isStatic(field.getModifiers()) || field.getType() != ConfigOption.class) {
                    continue;
                }
                field.setAccessible(true);
                ConfigOption<?> option = (ConfigOption<?>) field.get(null);
                boolean fixed = Arrays.stream(field.getAnnotations())
                        .anyMatch(a -> a.annotationType().getSimpleName().equals("Immutable"));
                System.out.println(option.key() + (fixed ? "\tfixed" : ""));
                for (FallbackKey key : option.fallbackKeys()) {
                    System.out.println(key.getKey());
                }
            }
        }
    }
}
